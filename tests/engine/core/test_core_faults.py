"""One sequence's failure is its own; a failed pass ends those that took part; nothing leaks."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.engine.commit import advance
from agentspec.engine.constrain import ConstraintViolated
from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.engine.sequence import Sequence
from agentspec.wire.errors import ContextLengthExceeded, InvalidRequest, Overloaded
from tests.engine.core.reference import Reference
from tests.engine.core.toy import (
    EOS,
    JSON_LIKE,
    TOKEN_BYTES,
    VOCAB,
    Dfa,
    DfaSession,
    EchoDrafter,
    ToyClock,
)
from tests.engine.core.world import MODEL, World, check_told, make

torch.set_num_threads(1)


class FaultyDrafter(EchoDrafter):
    """Fails in the method that the sequence's session names, once ``after`` tokens are there."""

    def __init__(self, after: int = 0):
        super().__init__("faulty")
        self.after = after

    def _fail(self, view: DraftView, method: str) -> None:
        if view.session == method and len(view.tokens) >= self.after:
            raise RuntimeError(f"{method} broke")

    def open(self, view: DraftView) -> None:
        super().open(view)
        self._fail(view, "open")

    def one(self, view: DraftView, limit: int) -> Proposal:
        self._fail(view, "propose")
        if view.session == "long":
            return self.one_hot([1] * (limit + 1))
        if view.session == "foreign":
            return self.one_hot([VOCAB])
        return super().one(view, limit)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        super().commit(view, proposal, accepted, committed)
        self._fail(view, "commit")

    def close(self, view: DraftView) -> None:
        super().close(view)
        self._fail(view, "close")


@pytest.mark.parametrize("fault", ["open", "propose", "commit", "long", "foreign"])
def test_a_drafter_that_fails_ends_its_sequence_only(fault: str):
    world = World(FaultyDrafter(after=15))
    good = make("good", sources=("faulty",))
    told = world.run(good, make("bad", prompt=[3] * 15, sources=("faulty",), session=fault))
    assert told["bad"].finish_reason == "error" and told["bad"].error
    check_told(told["good"], Reference(MODEL, good).decode())


def test_a_sequence_that_failed_costs_no_row():
    world = World(FaultyDrafter())
    world.run(make("bad", max_tokens=1), make("worse", sources=("faulty",), session="open"))
    assert sum(world.runner.rows) == 12
    assert world.told["worse"].error == "RuntimeError: open broke"
    world.run(make("late", prompt=[1], sources=("faulty",), session="propose"))
    assert sum(world.runner.rows) == 12


class FaultySession(DfaSession):
    """Fails in the named method, once ``after`` tokens were accepted."""

    def __init__(self, dfa: Dfa, path: list[str], fault: str = "", after: int = 0):
        super().__init__(dfa, path)
        self.fault, self.after = fault, after

    def _fail(self, method: str) -> None:
        if self.fault == method and len(self.path) > self.after:
            raise RuntimeError(f"{method} broke")

    def masks(self, draft: Seq[int], rows: torch.Tensor) -> int:
        """rows: [len(draft)+1, W] int32."""
        self._fail("masks")
        return super().masks(draft, rows)

    def allows(self, token: int) -> bool:
        self._fail("allows")
        return super().allows(token)

    def forced(self, limit: int) -> list[int]:
        self._fail("forced")
        return [EOS + 11] if self.fault == "illegal" and limit < 12 else super().forced(limit)

    def accept(self, tokens: Seq[int]) -> None:
        self._fail("accept")
        super().accept(tokens)

    def closing(self, limit: int) -> list[int] | None:
        self._fail("closing")
        return super().closing(limit)


class FaultyDfa(Dfa):
    """Its sessions fail; ``fault`` "session": it cannot open any."""

    fault = ""
    after = 0

    def session(self) -> DfaSession:
        if self.fault == "session":
            raise RuntimeError("session broke")
        return FaultySession(self, [self.start], self.fault, self.after)


def faulty(fault: str, after: int) -> Dfa:
    kind = type("Faulty", (FaultyDfa,), {"fault": fault, "after": after})
    return kind(JSON_LIKE.start, JSON_LIKE.moves, JSON_LIKE.accepting)


@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize("fault", ["session", "allows", "forced", "accept", "closing", "illegal"])
def test_a_constraint_that_fails_ends_its_sequence_only(fault: str, after: int):
    options: dict[str, Any] = {"stop_ids": frozenset({EOS}), "sources": ("oracle",)}
    good = make("good", constraint=JSON_LIKE, **options)
    told = World().run(good, make("bad", constraint=faulty(fault, after), **options))
    assert told["bad"].finish_reason == "error"
    assert "broke" in str(told["bad"].error) or "ConstraintViolated" in str(told["bad"].error)
    check_told(told["good"], Reference(MODEL, good).decode())


def test_an_illegal_token_is_an_error_and_never_text():
    request = make(constraint=JSON_LIKE, stop_ids=frozenset({EOS}))
    for wrong in (1, EOS):
        sequence = Sequence.of(request, 0, (), ToyClock())
        sequence.start_constraint(ToyClock())
        with pytest.raises(ConstraintViolated):
            advance(sequence, [wrong], TOKEN_BYTES)
        assert sequence.output_tokens == 0 and sequence.emission.take() == ("", [])


def test_a_failed_pass_ends_those_in_it_and_leaves_the_engine_usable():
    world = World(max_sequences=2)
    world.add(make("a", sources=("echo",)), make("b"), make("waits"))
    for _ in range(3):
        world.step()
    world.runner.fails = 1
    world.step()
    assert sorted(world.ended) == ["a", "b"]
    assert all(world.told[name].finish_reason == "error" for name in "ab")
    assert world.told["a"].error == "RuntimeError: the device is gone"
    told = world.run(make("after"))
    for name in ("waits", "after"):
        check_told(told[name], Reference(MODEL, make(name)).decode())


def test_an_abort_costs_no_further_row_and_frees_the_pages():
    world = World()
    world.add(make("a"), make("b"))
    world.step()
    passes = len(world.runner.rows)
    world.abort("a")
    world.abort("unknown")
    world.step()
    assert world.told["a"].finish_reason == "abort"
    assert world.runner.rows[passes:] == [1]
    world.abort("b")
    world.step()
    assert len(world.runner.rows) == passes + 1
    world.check_end()


def test_an_abort_of_a_waiting_request_is_told():
    world = World(max_sequences=1)
    world.add(make("a"), make("b"))
    world.step()
    world.abort("b")
    world.step()
    assert world.ended == ["b"] and world.told["b"].tokens == 0
    assert world.told["b"].report.queue_us > 0


def test_a_deadline_ends_running_and_waiting_sequences():
    world = World(max_sequences=1)
    clock = ToyClock()
    soon_s, past_s = clock.now_ns / 1e9 + 0.001, clock.now_ns / 1e9
    told = world.run(
        make("runs", deadline_s=soon_s, max_tokens=150),
        make("waits", deadline_s=past_s),
        make("fine", deadline_s=soon_s + 1000),
    )
    assert told["runs"].finish_reason == "deadline" and 0 < told["runs"].tokens < 150
    assert told["waits"].finish_reason == "deadline" and told["waits"].tokens == 0
    assert told["fine"].finish_reason == "length"


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"prompt": []}, InvalidRequest, "messages"),
        ({"prompt": [VOCAB]}, InvalidRequest, "prompt"),
        ({"max_tokens": 0}, InvalidRequest, "max_tokens"),
        ({"prompt": [1] * 200}, ContextLengthExceeded, "messages"),
        ({"prompt": [1] * 190}, InvalidRequest, "max_tokens"),
        ({"sources": ("magic",)}, InvalidRequest, "agentspec.speculation"),
    ],
)
def test_a_request_that_cannot_run_is_refused(change, error, param):
    world = World()
    with pytest.raises(error) as caught:
        world.engine.add(replace(make(), **change))
    assert caught.value.param == param
    assert not world.engine.has_work()


def test_a_request_larger_than_the_page_pool_is_refused():
    world = World(pages=5, page_tokens=4)
    with pytest.raises(ContextLengthExceeded):
        world.engine.add(make(prompt=[1] * 20))
    with pytest.raises(InvalidRequest):
        world.engine.add(make(prompt=[1] * 19, max_tokens=2))
    assert world.run(make(prompt=[1] * 19, max_tokens=1))["r"].tokens == 1


def test_a_full_queue_is_overloaded():
    world = World(max_waiting=2)
    world.add(make("a"), make("b"))
    with pytest.raises(Overloaded):
        world.engine.add(make("c"))
    world.step()
    world.add(make("c"))
    assert set(world.run()) == {"a", "b", "c"}


FAULTS = st.sampled_from([None, None, "open", "propose", "commit", "close", "long"])


@settings(max_examples=60)
@given(
    faults=st.lists(FAULTS, min_size=1, max_size=5),
    after=st.integers(0, 30),
    fails_at=st.sets(st.integers(0, 20), max_size=2),
    pages=st.integers(9, 20),
    step_tokens=st.sampled_from([2, 7, 64]),
)
def test_faults_in_any_company_touch_nobody_else(faults, after, fails_at, pages, step_tokens):
    world = World(FaultyDrafter(after), pages=pages, step_tokens=step_tokens, max_sequences=3)
    requests = [
        make(f"r{i}", prompt=[i + 1] * 8, sources=("faulty",), session=fault)
        for i, fault in enumerate(faults)
    ]
    world.add(*requests)
    for number in range(21):
        world.runner.fails = int(number in fails_at)
        world.step()
    world.runner.fails = 0
    told = world.run()
    for request, fault in zip(requests, faults, strict=True):
        truth = Reference(MODEL, request).decode()
        here = told[request.id]
        if here.finish_reason == "error":
            assert truth.text.startswith(here.text)
            assert fault is not None or "device" in str(here.error)
        else:
            check_told(here, truth)
