"""This engine, in this process, as one engine of the comparison; it also tokenizes for all."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.settings import load
from agentspec.wire.chat import decode_request, encode
from agentspec.wire.errors import ContextLengthExceeded

from . import padding
from .stats import looping
from .teacher import Lesson, Teacher
from .workloads import Case, Prompt, Run

if TYPE_CHECKING:
    from agentspec.engine.core import Engine
    from agentspec.engine.request import GenerationRequest, Output
    from agentspec.engine.tokenizer import Tokenizer
    from agentspec.engine.turn import Planner


@dataclass(slots=True)
class Timing:
    """What one sequence showed from outside. Times are ``time.perf_counter()`` seconds."""

    case: Case
    start_s: float
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
        teacher: Teacher,
    ):
        self.weights = weights
        self.engine = engine
        self.planner = planner
        self.tokenizer = tokenizer
        self._teacher = teacher
        self._bodies: dict[str, dict[str, Any]] = {}
        self._runs = 0

    @classmethod
    def start(
        cls, weights: str | None, threads: int, config: str | None, kv_tokens: int = 0
    ) -> Ours:
        """Load the model and profile its cost curve. Raises ``SettingsError``, ``FetchError``.

        kv_tokens: what the K/V pool must hold at least.
        """
        from agentspec.engine.build import build

        settings = load(config).engine
        settings.threads = threads
        settings.kv_tokens = max(settings.kv_tokens, kv_tokens)
        if weights is not None:
            settings.weights = weights
        teachers: list[Teacher] = []

        def wrap(runner: Any) -> Teacher:
            teachers.append(Teacher(runner))
            return teachers[0]

        built = build(settings, wrap)
        return cls(built.engine, built.planner, built.tokenizer, built.weights, teachers[0])

    def able(self, workload: str, concurrency: int) -> bool:
        return True

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else ("+".join(self.planner.sources),)

    def _plan(
        self, body: dict[str, Any], max_tokens: int, speculate: bool, free: bool = False
    ) -> GenerationRequest:
        self._runs += 1
        body = {
            **body,
            "model": self.planner.model,
            "temperature": 0,
            "max_tokens": max_tokens,
            "agentspec": {"speculation": "auto" if speculate else "off"},
        }
        turn = self.planner.plan(decode_request(encode(body)), time.monotonic())
        first = turn.sequences[0]
        constraint = None if free else first.constraint
        scope = f"bench-{self._runs}"
        return replace(first, cache_scope=scope, session=None, constraint=constraint)

    def _count(self, body: dict[str, Any]) -> int:
        try:
            return len(self._plan(body, 1, False).prompt)
        except ContextLengthExceeded:
            return sys.maxsize

    def case(self, prompt: Prompt, max_tokens: int, context: int = 0) -> Case:
        """The prompt as token ids, for every engine. context: tokens to bring it to, 0: none."""
        body, most = prompt.body, self.planner.context_tokens - max_tokens
        if context or self._count(body) > most:
            seed = sum(prompt.id.encode())
            body = padding.fitted(
                body, prompt.workload, self._count, min(context or most, most), seed
            )
        id = f"{prompt.id}@{context}"
        self._bodies[id] = body
        script = () if prompt.answer is None else self.script(prompt.answer)
        tokens = tuple(self._plan(body, max_tokens, False).prompt)
        return Case(id, prompt.workload, tokens, max_tokens, context, script[:max_tokens])

    def body(self, case: Case) -> dict[str, Any]:
        """The chat request of a case that was made here, without model and sampling."""
        return self._bodies[case.id]

    def script(self, answer: str) -> tuple[int, ...]:
        """The tokens of a whole answer, its end included."""
        return (*self.tokenizer.encode(answer), min(self.tokenizer.eos_ids))

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases, ``concurrency`` at a time, after an unmeasured short one."""
        speculate = variant != "plain"
        self._teacher.teach([Lesson(c.tokens + c.script, len(c.tokens)) for c in cases if c.script])
        list(self._together([replace(cases[0], max_tokens=8)], speculate, 1))
        yield from self._together(cases, speculate, concurrency)
        self._teacher.teach(())

    def _together(self, cases: Seq[Case], speculate: bool, concurrency: int) -> Iterator[Run]:
        """As one ends the next comes; only so many are in the engine."""
        coming, timings = list(cases), dict[str, Timing]()
        while coming or timings:
            while coming and len(timings) < concurrency:
                case = coming.pop(0)
                body = self._bodies[case.id]
                request = self._plan(body, case.max_tokens, speculate, case.free)
                timings[request.id] = Timing(case, time.perf_counter())
                self.engine.add(request)
            outputs = self.engine.step()
            now_s = time.perf_counter()
            for output in outputs:
                timings[output.id].add(output, now_s)
                if output.finish_reason is not None:
                    yield self._run(timings.pop(output.id), output)

    def _run(self, timing: Timing, last: Output) -> Run:
        assert last.report is not None
        case, report, text = timing.case, last.report, "".join(timing.text)
        # Tokens that the grammar forces are there before the prompt is through: not the start.
        begin_s = max(timing.first_s, timing.start_s + report.busy_us.prefill / 1e6)
        count, decode_s = timing.tokens - timing.first_tokens, timing.last_s - begin_s
        accepted = report.totals()[1]
        return Run(
            case=case.id,
            workload=case.workload,
            prompt_tokens=len(case.tokens),
            out_tokens=timing.tokens,
            tok_s=count / decode_s if count and decode_s > 0 else None,
            prefill_tok_s=len(case.tokens) / (begin_s - timing.start_s),
            accepted_length=1 + accepted / report.steps if report.steps else 1.0,
            looped=not case.script and looping(self.tokenizer.encode(text)),
            text=text,
            exact=report.exact,
            started_s=timing.start_s,
            ended_s=timing.last_s,
        )
