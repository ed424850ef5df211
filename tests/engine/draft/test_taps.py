"""Drafters with taps are shown the features of committed tokens, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest
import torch

from agentspec.engine.batch import Forward, Span
from agentspec.engine.core import Engine
from agentspec.engine.draft.base import DraftView, Observed, Proposal
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from agentspec.wire.errors import InvalidRequest
from tests.engine.core.toy import (
    FLAT,
    TOKEN_BYTES,
    A,
    B,
    C,
    OracleDrafter,
    ToyClock,
    ToyModel,
    ToyRunner,
)
from tests.engine.core.trees import TreeDrafter

SETTINGS = EngineSettings(
    context_tokens=128, kv_tokens=512, page_tokens=4, step_tokens=16, max_draft_tokens=5
)


def feature(tokens: Seq[int], position: int, tap: int) -> float:
    """What a layer says of a position: a function of the text up to it."""
    state = 0
    for at, token in enumerate(tokens[: position + 1]):
        state = ToyModel.state(state, token, at)
    return float(state % 100_003 + 1_000_000 * tap)


class TappedRunner(ToyRunner):
    """Gives the features of ``feature`` for every row, drafts included."""

    taps: tuple[int, ...] = ()

    def set_taps(self, taps: Seq[int]) -> None:
        if any(tap > 3 for tap in taps):
            raise ValueError(f"no layer {max(taps)}")
        self.taps = tuple(taps)

    def forward(self, spans: Seq[Span], /) -> Forward:
        forward = super().forward(spans)
        rows = []
        for span in spans:
            states = [self._read(span.pages, p) for p in range(span.start + len(span.tokens))]
            rows += [
                [float(state % 100_003 + 1_000_000 * tap) for tap in self.taps]
                for state in states[span.start :]
            ]
        if self.taps:
            forward.features = torch.tensor(rows, dtype=torch.float64)
        return forward


class Watcher(OracleDrafter):
    """Checks every feature it is shown, and counts the positions."""

    def __init__(self, model: ToyModel, taps: tuple[int, ...], name: str = "watcher"):
        super().__init__(model, name=name)
        self.taps = taps
        self.shown: dict[int, list[int]] = {}
        self.first: dict[int, int] = {}

    def open(self, view: DraftView) -> None:
        super().open(view)
        self.shown[view.sequence_id] = []

    def observe(self, observed: Seq[Observed]) -> None:
        for one in observed:
            assert one.end <= len(one.view.tokens) - 1, "the last token has no features yet"
            for row, position in enumerate(range(one.start, one.end)):
                expected = [feature(one.view.tokens, position, tap) for tap in self.taps]
                assert one.features[row].tolist() == expected
                assert len(one.view.pages) * 4 > position
            self.shown[one.view.sequence_id] += range(one.start, one.end)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        super().commit(view, proposal, accepted, committed)
        assert self.shown[view.sequence_id][-1] == len(view.tokens) - 2, "all but the last token"


def engine_of(runner: ToyRunner, *drafters) -> Engine:
    return Engine(
        runner,
        drafters,
        curve=FLAT,
        settings=SETTINGS,
        token_bytes=TOKEN_BYTES,
        clock=ToyClock(),
    )


def request(number: int, prompt: Seq[int], sources=("watcher", "other")) -> GenerationRequest:
    return GenerationRequest(
        id=f"r{number}",
        prompt=list(prompt),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=30,
        sources=tuple(sources),
    )


def drain(engine: Engine) -> None:
    while engine.has_work():
        assert all(output.finish_reason != "error" for output in engine.step())
        engine.check_integrity()


def test_features_of_committed_tokens_in_order_in_any_company() -> None:
    model = ToyModel(3)
    watcher, other = Watcher(model, (2, 0)), Watcher(model, (1,), "other")
    runner = TappedRunner(model, num_pages=128)
    engine = engine_of(runner, watcher, other)
    assert runner.taps == (0, 1, 2)
    prompts = [[A, B] * 15, [C], [B, A, C, C, A], [A] * 9]
    for number, prompt in enumerate(prompts):
        engine.add(request(number, prompt))
    drain(engine)
    for number, prompt in enumerate(prompts):
        shown = watcher.shown[number]
        assert shown == list(range(shown[-1] + 1)), "each position once, none missing"
        assert len(shown) > len(prompt)
    assert watcher.accepted > 20


def test_features_of_the_path_that_stands_where_drafts_are_trees() -> None:
    class Onlooker(Watcher):
        def one(self, view: DraftView, limit: int) -> Proposal:
            return Proposal()

    model = ToyModel(3)
    watcher, drafter = Onlooker(model, (2, 0)), TreeDrafter(model, wrong=9, name="tree")
    runner = TappedRunner(model, num_pages=128)
    engine = engine_of(runner, drafter, watcher)
    for number, prompt in enumerate([[A, B] * 5, [C], [B, A, C, C, A]]):
        engine.add(request(number, prompt, ("tree", "watcher")))
    drain(engine)
    assert runner.moved > 10 and drafter.accepted > 20


def test_positions_of_a_prefix_hit_are_not_shown() -> None:
    model = ToyModel(3)
    watcher = Watcher(model, (1,))
    engine = engine_of(TappedRunner(model, num_pages=128), watcher)
    for number in range(2):
        engine.add(request(number, [A, B, C] * 6, ("watcher",)))
        drain(engine)
    assert watcher.shown[0][0] == 0
    assert watcher.shown[1][0] == 16, "four pages of four tokens were served"


def test_epochs_tell_pages_apart_that_hold_another_text_now() -> None:
    model = ToyModel(3)
    engine = engine_of(TappedRunner(model, num_pages=16), Watcher(model, (1,)))
    seen: set[tuple[int, int]] = set()
    for number in range(4):
        engine.add(request(number, [number + 1] * 20, ("watcher",)))
        engine.step()
        view = engine._live[f"r{number}"].view
        holds = {(page, view.page_epochs[page]) for page in view.pages}
        assert not holds & seen, "a page with the epoch of an earlier text"
        seen |= holds
        drain(engine)


def test_dropped_while_it_runs_and_taken_in_again() -> None:
    model = ToyModel(3)
    watcher = Watcher(model, (3,))
    runner = TappedRunner(model, num_pages=128)
    engine = engine_of(runner)
    engine.add_drafter(watcher)
    engine.add(request(0, [A, B], ("watcher",)))
    engine.step()
    assert runner.taps == (3,) and watcher.seen
    engine.drop_drafter("watcher")
    assert runner.taps == () and not watcher.seen
    engine.add(request(1, [A, B], ("watcher",)))
    drain(engine)
    engine.add_drafter(Watcher(model, (0,)))
    engine.add(request(2, [A, B], ("watcher",)))
    drain(engine)
    with pytest.raises(InvalidRequest, match="never"):
        engine.add(request(3, [A, B], ("never",)))


def test_a_drafter_that_cannot_be_served_changes_nothing() -> None:
    model = ToyModel(3)
    engine = engine_of(ToyRunner(model, num_pages=128))
    with pytest.raises(ValueError, match="'watcher'.*need target features"):
        engine.add_drafter(Watcher(model, (0,)))
    engine = engine_of(TappedRunner(model, num_pages=128))
    with pytest.raises(ValueError, match="no layer 7"):
        engine.add_drafter(Watcher(model, (7,)))
    with pytest.raises(KeyError):
        engine.drop_drafter("watcher")
    engine.add_drafter(Watcher(model, (0,)))
    with pytest.raises(ValueError, match="already"):
        engine.add_drafter(Watcher(model, (0,)))
