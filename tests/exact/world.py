"""Engines over one loaded runner, and what requests answered in whatever company they ran."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agentspec.bench import workloads
from agentspec.engine.batch import Forward, Span
from agentspec.engine.build import constraints
from agentspec.engine.core import Engine, Runner
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft import create
from agentspec.engine.meter import Clock
from agentspec.engine.request import GenerationRequest
from agentspec.engine.stats import EngineStats
from agentspec.engine.tokenizer import Tokenizer
from agentspec.engine.turn import Planner
from agentspec.settings import EngineSettings
from agentspec.settings_scheduling import SchedulingSettings
from agentspec.toolcall.format import load_format
from agentspec.wire.chat import decode_request, encode
from agentspec.wire.extension import SpecReport
from tests.exact.script import Script, ScriptTree

SOURCES: dict[str, str | list[str]] = {
    "off": "off",
    "forced": ["forced"],
    "suffix": ["suffix"],
    "both": ["suffix", "forced"],
    "script": ["script"],
    "tree": ["tree"],
}
"""Levels of speculation: what a request says. "script" proposes the true answer, spoilt at places,
so that long drafts are accepted, and cut off at every depth; "tree" the same among siblings."""
SEED = 20_261_130
# Every draft is worth verifying, so that passes are as mixed as they can be.
FLAT = CostCurve.of((1, 64), (1.0, 1.0))


class Answer(NamedTuple):
    """What a client would see, and how it ended."""

    text: str
    tokens: int
    finish_reason: str | None
    closed_out: bool


@dataclass
class Told:
    """What an engine told of one request so far."""

    answer: Answer = Answer("", 0, None, False)
    cached_tokens: int = 0
    report: SpecReport = field(default_factory=SpecReport)


class Case(NamedTuple):
    """One of the 50 requests at one temperature (0, or 1 with a seed)."""

    prompt: int
    temperature: int


class Narrow:
    """A runner with fewer pages to give, which remembers the tokens that it was shown.

    shown: token by position of the last passes, of all sequences: of use where there is one alone.
    """

    def __init__(self, inner: Runner, num_pages: int | None = None):
        self._inner = inner
        self.num_pages = num_pages or inner.num_pages
        self.vocab_size, self.page_tokens = inner.vocab_size, inner.page_tokens
        self.context_tokens, self.exact = inner.context_tokens, inner.exact
        self.shown: dict[int, int] = {}

    def forward(self, spans: Seq[Span]) -> Forward:
        assert all(0 <= page < self.num_pages for span in spans for page in span.pages)
        for span in spans:
            self.shown.update(enumerate(span.tokens, span.start))
        return self._inner.forward(spans)

    def compact(self, pages: Seq[int], moves: Seq[tuple[int, int]]) -> None:
        self._inner.compact(pages, moves)


def bodies() -> list[dict[str, Any]]:
    """The 50 requests: the bench's prompts (chat, code, edit, tool), and those of this folder."""
    counts = {"chat": 8, "code": 8, "edit": 8, "tool": 10}
    drawn = [p.body for name, count in counts.items() for p in workloads.load(name, count)]
    lines = Path(__file__).with_name("prompts.jsonl").read_text().splitlines()
    return drawn + [json.loads(line) for line in lines]


class World:
    """A loaded runner, its tokenizer and grammar compiler; requests by case.

    narrow: what the engine made last runs on.
    """

    narrow: Narrow

    def __init__(self, runner: Runner, weights: Path, max_tokens: int):
        self.runner = runner
        self.weights = weights
        self.tokenizer = Tokenizer.load(weights)
        self.settings = EngineSettings(context_tokens=runner.context_tokens)
        self.script = Script()
        self.stats: list[EngineStats] = []
        self._planner = Planner(
            model=self.settings.model,
            context_tokens=runner.context_tokens,
            tokenizer=self.tokenizer,
            tool_format=load_format("smollm2"),
            compiler=constraints(self.tokenizer, self.settings),
            sources=("suffix", "script", "tree"),
        )
        self._bodies = bodies()
        self._max_tokens = max_tokens
        self._numbers = itertools.count()

    def request(
        self, case: Case, speculation: str = "off", scope: str | None = None
    ) -> GenerationRequest:
        """Planned as the server plans it. scope None: one that nobody else has."""
        body = self._bodies[case.prompt] | {
            "model": self.settings.model,
            "temperature": case.temperature,
            "seed": SEED + case.prompt,
            "max_tokens": self._max_tokens,
            "agentspec": {"speculation": SOURCES[speculation], "session": f"s{case.prompt}"},
        }
        turn = self._planner.plan(decode_request(encode(body)), 0.0)
        number = next(self._numbers)
        scope = f"alone-{number}" if scope is None else scope
        return replace(turn.sequences[0], id=f"r{number}", cache_scope=scope)

    def engine(
        self, step_tokens: int = 512, num_pages: int | None = None, clock: Clock = time.monotonic_ns
    ) -> Engine:
        """A new engine over the runner; of those made before none may step again."""
        settings = EngineSettings(
            step_tokens=step_tokens,
            context_tokens=self.runner.context_tokens,
            scheduling=SchedulingSettings(mode="k99"),
        )
        self.narrow = Narrow(self.runner, num_pages)
        return Engine(
            self.narrow,
            [create("suffix"), self.script, ScriptTree(self.script)],
            curve=FLAT,
            settings=settings,
            token_bytes=self.tokenizer.token_bytes,
            clock=clock,
        )

    def alone(self, case: Case) -> Answer:
        """Plain decoding, one sequence, one chunk: what every other way must equal.

        The script drafter learns the answer's tokens.
        """
        request = self.request(case)
        told = drive(self.engine(), [request])[request.id]
        first = len(request.prompt)
        shown = [token for at, token in sorted(self.narrow.shown.items()) if at >= first]
        self.script.learn(case, request.prompt, shown)
        return told.answer

    def check_over(self, engine: Engine) -> None:
        """Everything is given back, and time adds up; keeps the engine's figures."""
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)
        self.stats.append(stats)


def drive(
    engine: Engine,
    requests: Seq[GenerationRequest],
    *,
    every: int = 0,
    abort: tuple[GenerationRequest, int] | None = None,
) -> dict[str, Told]:
    """Step until all is done; what was told, by id.

    every: steps between the arrivals. abort: a request that comes first, and the step at which it
    is given up.
    """
    told: dict[str, Told] = {}
    coming = list(requests)
    if abort is not None:
        engine.add(abort[0])
    for step in itertools.count():
        while coming and (every == 0 or step % every == 0):
            engine.add(coming.pop(0))
            if every:
                break
        if abort is not None and step == abort[1]:
            engine.abort(abort[0].id)
        if not (coming or engine.has_work()):
            return told
        for output in engine.step():
            one = told.setdefault(output.id, Told())
            before = one.answer
            one.answer = Answer(
                before.text + output.text,
                before.tokens + output.tokens,
                output.finish_reason,
                output.closed_out,
            )
            if output.report is not None:
                assert output.error is None, output.error
                one.cached_tokens, one.report = output.cached_tokens, output.report
    raise AssertionError
