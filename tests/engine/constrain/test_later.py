"""Calls that may be made: their grammar is built while the free text before them is computed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentspec.engine.constrain.base import ConstraintViolated
from agentspec.engine.constrain.later import Later
from agentspec.wire.errors import InvalidSchema

from .conftest import tools_spec
from .schemas import AGENT_TOOLS

ORDINARY = {name: AGENT_TOOLS[name] for name in ("read_file", "write_file", "list_agents")}


def held(monkeypatch, factory) -> tuple[threading.Event, list[Any]]:
    """Building waits for the event; the specs whose building began."""
    go, begun, build = threading.Event(), [], factory.build

    def waiting(spec):
        begun.append(spec)
        assert go.wait(60)
        return build(spec)

    monkeypatch.setattr(factory, "build", waiting)
    return go, begun


def test_free_text_does_not_wait_for_the_grammar(small, monkeypatch):
    factory = small.factory()
    go, begun = held(monkeypatch, factory)
    spec = tools_spec(ORDINARY, calls="may")
    session = factory.compile(spec).session()
    assert not session.needs_mask() and session.forced(9) == []
    session.accept(small.encode("Let me look. "))
    go.set()
    session.accept(small.encode(spec.format.open))
    assert session.in_grammar and session.forced(200)
    another = factory.compile(spec).session()
    another.accept(small.encode(spec.format.open))
    assert len(begun) == 1


@pytest.mark.parametrize("calls", ["may", "must"])
def test_what_is_not_sure_is_built_before_the_answer_begins(small, factories, calls):
    unmeetable = {"type": "object", "properties": {"a": False}, "required": ["a"]}
    spec = tools_spec({**ORDINARY, "odd": unmeetable}, calls=calls)
    with pytest.raises(InvalidSchema):
        factories().compile(spec)


def test_keywords_that_masks_do_not_hold_are_known_at_once(factories):
    odd = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    tools = {"odd": {"type": "object", "properties": {"a": odd}}}
    compiled = factories().compile(tools_spec({**ORDINARY, **tools}, calls="may"))
    assert compiled.unchecked == ("tools.odd#/properties/a/uniqueItems",)


def test_a_grammar_that_cannot_be_built_fails_closed_and_is_tried_again():
    fails: list[Exception] = [RuntimeError("busy"), RuntimeError("busy")]

    class Session:
        def clone(self) -> str:
            return "a session"

    def build() -> Any:
        if fails:
            raise fails.pop()
        return Session()

    later = Later(build, delay_s=3600)
    for _ in range(2):
        with pytest.raises(ConstraintViolated, match="busy"):
            later.session()
    assert later.session() == "a session"
