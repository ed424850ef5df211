"""One request through a stepped engine, alone, and all that it told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentspec.engine.draft.base import FORCED
from agentspec.wire.extension import BusyTime

from .rounds import Round, Watch

if TYPE_CHECKING:
    from agentspec.engine.core import Engine
    from agentspec.engine.request import GenerationRequest
    from agentspec.wire.extension import SpecReport


@dataclass(slots=True, kw_only=True)
class Answer:
    """One answer.

    tokens, seconds: what came after the first output, and in what time. steps: verifications (the
    pass that ends the prompt only if it verified drafts). drafted, accepted: forced tokens apart.
    """

    text: str
    out_tokens: int
    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    forced: int = 0
    busy: BusyTime = field(default_factory=BusyTime)
    exact: bool = False
    looped: bool = False
    rounds: list[Round] = field(default_factory=list)


class Driver:
    """Answers one request after the other. looped: whether a text runs into repetition."""

    def __init__(self, engine: Engine, watch: Watch, looped: Callable[[str], bool]):
        self._engine = engine
        self._watch = watch
        self._looped = looped

    def answer(self, request: GenerationRequest, mode: str) -> Answer:
        """mode: of speculation. Raises ``RuntimeError`` where the engine fails the request."""
        self._engine.speculation_mode = mode
        self._watch.take()
        texts: list[str] = []
        start_s = time.perf_counter()
        first_s, first_tokens = 0.0, 0
        self._engine.add(request)
        while True:
            outputs = self._engine.step()
            now_s = time.perf_counter()
            for output in outputs:
                if output.tokens and not first_tokens:
                    first_s, first_tokens = now_s, output.tokens
                texts.append(output.text)
                if output.finish_reason is None:
                    continue
                if output.report is None or output.finish_reason == "error":
                    raise RuntimeError(f"{request.id}: {output.error or output.finish_reason}")
                # Tokens that the grammar forces are there before the prompt is through.
                begin_s = max(first_s, start_s + output.report.busy_us.prefill / 1e6)
                answer = self._made("".join(texts), output.output_tokens, output.report)
                answer.tokens = output.output_tokens - first_tokens
                answer.seconds = max(now_s - begin_s, 0.0)
                return answer

    def _made(self, text: str, out_tokens: int, report: SpecReport) -> Answer:
        """Its time is filled in by who has measured it."""
        drafted, accepted = report.totals()
        forced = report.sources.get(FORCED)
        return Answer(
            text=text,
            out_tokens=out_tokens,
            steps=report.steps,
            drafted=drafted,
            accepted=accepted,
            forced=forced.accepted if forced else 0,
            busy=report.busy_us,
            exact=report.exact,
            looped=self._looped(text),
            rounds=self._watch.take(),
        )
