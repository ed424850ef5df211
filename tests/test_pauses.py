"""What the garbage collector no longer looks at, and that it is put back."""

import gc
import weakref

import pytest

from agentspec import pauses
from agentspec.pauses import ShortPauses


class Thing:
    other: object = None


def _cycle() -> weakref.ref:
    thing = Thing()
    thing.other = thing
    return weakref.ref(thing)


def test_what_was_there_is_not_looked_at_and_new_garbage_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pauses, "LONG_MS", float("inf"))
    assert gc.get_freeze_count() == 0
    with ShortPauses():
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        cycle = _cycle()
        assert cycle() is not None
        gc.collect()
        assert cycle() is None
        assert 0 < gc.get_freeze_count() <= frozen  # what is let go by its count leaves, too
    assert gc.get_freeze_count() == 0


def test_what_is_left_after_a_long_collection_is_put_aside_as_well(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pauses, "LONG_MS", float("inf"))
    with ShortPauses():
        later = Thing()
        later.other = later
        gc.collect()
        assert any(thing is later for thing in gc.get_objects())
        monkeypatch.setattr(pauses, "LONG_MS", 0.0)
        gc.collect()
        assert not any(thing is later for thing in gc.get_objects())
        later.other = None
    assert pauses.ShortPauses._watch not in [getattr(c, "__func__", c) for c in gc.callbacks]
