"""An engine under test, and what it told; shared by the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agentspec.engine.draft import create, names
from agentspec.engine.request import GenerationRequest, TokenInfo
from agentspec.engine.sampling import SamplingParams
from agentspec.wire.extension import BusyTime, SpecReport
from tests.engine.core.reference import Truth
from tests.engine.core.toy import (
    DenseDrafter,
    EchoDrafter,
    OracleDrafter,
    RecordingDrafter,
    ToyModel,
    ToyRunner,
    make_engine,
)

MODEL = ToyModel()
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


@dataclass
class Told:
    """All outputs of one request."""

    text: str = ""
    tokens: int = 0
    infos: list[TokenInfo] = field(default_factory=list)
    finish_reason: str | None = None
    error: str | None = None
    cached_tokens: int = 0
    report: SpecReport = field(default_factory=SpecReport)


class World:
    """An engine and its surroundings; integrity is checked after everything that happens."""

    def __init__(
        self,
        *more_drafters: RecordingDrafter,
        pages: int = 64,
        page_tokens: int = 4,
        **options: Any,
    ):
        self.runner = ToyRunner(MODEL, num_pages=pages, page_tokens=page_tokens)
        self.drafters = [
            OracleDrafter(MODEL),
            EchoDrafter("echo"),
            DenseDrafter("dense"),
            *more_drafters,
        ]
        real = [create(name) for name in names()]
        self.engine = make_engine(self.runner, [*self.drafters, *real], **options)
        self.told: dict[str, Told] = {}
        self.ended: list[str] = []

    def add(self, *requests: GenerationRequest) -> None:
        for request in requests:
            self.engine.add(request)
            self.engine.check_integrity()

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)
        self.engine.check_integrity()

    def step(self) -> None:
        for output in self.engine.step():
            told = self.told.setdefault(output.id, Told())
            assert told.finish_reason is None, "an output after the last one"
            told.text += output.text
            told.tokens += output.tokens
            told.infos += output.infos
            told.finish_reason, told.error = output.finish_reason, output.error
            if output.finish_reason is not None:
                assert output.report is not None and output.output_tokens == told.tokens
                told.report, told.cached_tokens = output.report, output.cached_tokens
                self.ended.append(output.id)
        self.engine.check_integrity()

    def run(self, *requests: GenerationRequest) -> dict[str, Told]:
        """Add the requests and step until all work is done."""
        self.add(*requests)
        for _ in range(2000):
            if not self.engine.has_work():
                break
            self.step()
        assert not self.engine.has_work(), "the engine does not come to an end"
        self.check_end()
        return self.told

    def check_end(self) -> None:
        """Time adds up to the microsecond; nothing is held any more."""
        total = BusyTime()
        for told in self.told.values():
            for kind in ("prefill", "decode", "draft", "grammar"):
                part = getattr(told.report.busy_us, kind)
                assert part >= 0
                setattr(total, kind, getattr(total, kind) + part)
        stats = self.engine.stats()
        assert total == stats.busy_us
        assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)
        assert all(not drafter.seen for drafter in self.drafters), "a sequence was not closed"


def make(id: str = "r", prompt: list[int] | None = None, **options: Any) -> GenerationRequest:
    """A greedy request of 16 tokens, unless ``options`` say otherwise."""
    options.setdefault("sampling", SamplingParams(temperature=0.0))
    options.setdefault("max_tokens", 16)
    return GenerationRequest(id=id, prompt=list(prompt or PROMPT), **options)


def spelled(infos: list[TokenInfo]) -> tuple[list[list[int]], list[float]]:
    """Token ids (own, then alternatives) of each info, and all log-probabilities in a row."""
    ids = [[info.token, *(token for token, _ in info.top)] for info in infos]
    values = [x for info in infos for x in (info.logprob, *(value for _, value in info.top))]
    return ids, values


def check_told(told: Told, truth: Truth) -> None:
    """Text, tokens, end, log-probabilities and forced tokens are the reference's."""
    assert told.error is None
    assert (told.text, told.tokens) == (truth.text, len(truth.output))
    assert told.finish_reason == truth.finish_reason
    ids, values = spelled(told.infos)
    true_ids, true_values = spelled(truth.infos)
    assert ids == true_ids and values == pytest.approx(true_values, abs=1e-9)
    report = told.report
    forced = report.sources.get("forced")
    assert (forced.drafted, forced.accepted) == (truth.forced,) * 2 if forced else not truth.forced
    assert report.exact and report.steps == sum(report.hist)
    drafted, accepted = report.totals()
    assert sum(j * n for j, n in enumerate(report.hist)) <= accepted <= drafted
