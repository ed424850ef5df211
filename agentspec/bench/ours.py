"""This engine, in this process, as one engine of the comparison; it also tokenizes for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.settings import load
from agentspec.wire.chat import decode_request, encode

from .stats import looping
from .workloads import Case, Prompt, Run

if TYPE_CHECKING:
    from agentspec.engine.core import Engine
    from agentspec.engine.request import GenerationRequest, Output
    from agentspec.engine.tokenizer import Tokenizer
    from agentspec.engine.turn import Planner


@dataclass(slots=True)
class Timing:
    """What one sequence showed from outside. Times are ``time.perf_counter()`` seconds."""

    first_s: float = 0.0
    first_tokens: int = 0
    tokens: int = 0
    last_s: float = 0.0
    text: list[str] = field(default_factory=list)

    def add(self, output: Output, now_s: float) -> None:
        if output.tokens and not self.tokens:
            self.first_s, self.first_tokens = now_s, output.tokens
        self.tokens += output.tokens
        self.text.append(output.text)
        self.last_s = now_s


class Ours:
    """Requests are planned as the server plans them, then stepped here. Scopes are never shared."""

    name = "agentspec"

    def __init__(
        self,
        engine: Engine,
        planner: Planner,
        tokenizer: Tokenizer,
        weights: Path,
    ):
        self.weights = weights
        self._engine = engine
        self._planner = planner
        self._tokenizer = tokenizer
        self._prompts: dict[str, Prompt] = {}
        self._runs = 0

    @classmethod
    def start(cls, weights: str | None, threads: int, config: str | None) -> Ours:
        """Load the model and profile its cost curve. Raises ``SettingsError``, ``FetchError``."""
        from agentspec.engine.build import build

        settings = load(config).engine
        settings.threads = threads
        if weights is not None:
            settings.weights = weights
        built = build(settings)
        return cls(built.engine, built.planner, built.tokenizer, built.weights)

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else ("+".join(self._planner.sources),)

    def _plan(self, prompt: Prompt, max_tokens: int, speculate: bool) -> GenerationRequest:
        self._runs += 1
        body: dict[str, Any] = {
            **prompt.body,
            "model": self._planner.model,
            "temperature": 0,
            "max_tokens": max_tokens,
            "agentspec": {"speculation": "auto" if speculate else "off"},
        }
        turn = self._planner.plan(decode_request(encode(body)), time.monotonic())
        return replace(turn.sequences[0], cache_scope=f"bench-{self._runs}", session=None)

    def case(self, prompt: Prompt, max_tokens: int) -> Case:
        """The prompt as token ids, for every engine."""
        self._prompts[prompt.id] = prompt
        tokens = tuple(self._plan(prompt, max_tokens, False).prompt)
        return Case(prompt.id, prompt.workload, tokens, max_tokens)

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases, ``concurrency`` at a time, after an unmeasured one."""
        speculate = variant != "plain"
        self._together([replace(cases[0], max_tokens=8)], speculate)
        for i in range(0, len(cases), concurrency):
            yield from self._together(cases[i : i + concurrency], speculate)

    def _together(self, cases: Seq[Case], speculate: bool) -> list[Run]:
        asked = {}
        for case in cases:
            request = self._plan(self._prompts[case.id], case.max_tokens, speculate)
            asked[request.id] = (case, request)
        timings = {id: Timing() for id in asked}
        runs = []
        start_s = time.perf_counter()
        for _, request in asked.values():
            self._engine.add(request)
        while self._engine.has_work():
            outputs = self._engine.step()
            now_s = time.perf_counter()
            for output in outputs:
                timings[output.id].add(output, now_s)
                if output.finish_reason is not None:
                    case = asked[output.id][0]
                    runs.append(self._run(case, timings[output.id], output, start_s))
        return runs

    def _run(self, case: Case, timing: Timing, last: Output, start_s: float) -> Run:
        assert last.report is not None
        report, text = last.report, "".join(timing.text)
        # Tokens that the grammar forces are there before the prompt is through: not the start.
        begin_s = max(timing.first_s, start_s + report.busy_us.prefill / 1e6)
        count, decode_s = timing.tokens - timing.first_tokens, timing.last_s - begin_s
        accepted = report.totals()[1]
        return Run(
            case=case.id,
            workload=case.workload,
            out_tokens=timing.tokens,
            tok_s=count / decode_s if count and decode_s > 0 else None,
            prefill_tok_s=len(case.tokens) / (begin_s - start_s),
            accepted_length=1 + accepted / report.steps if report.steps else 1.0,
            looped=looping(self._tokenizer.encode(text)),
            text=text,
            exact=report.exact,
        )
