"""Requests into a stepped engine, in a closed loop or as they arrive, and what each of them saw.

Knows no clock of its own: a real engine runs on real time, a simulated one on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

from agentspec.engine.request import GenerationRequest, Output
from agentspec.wire.errors import Overloaded

from .stats import percentile


class Stepped(Protocol):
    """What is asked of an engine."""

    def add(self, request: GenerationRequest, /) -> object: ...
    def has_work(self) -> bool: ...
    def step(self) -> list[Output]: ...


@dataclass(slots=True)
class Seen:
    """One request from outside; seconds of the driver's clock. tokens: of its output so far.

    first_tokens: how many came together first. accepted, drafted: of its report.
    """

    start_s: float
    first_s: float = 0.0
    last_s: float = 0.0
    tokens: int = 0
    first_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first ones; None where there is no other."""
        later = self.tokens - self.first_tokens
        return (self.last_s - self.first_s) / later if later > 0 else None

    def add(self, output: Output, now_s: float) -> None:
        if output.tokens and not self.tokens:
            self.first_s, self.first_tokens = now_s, output.tokens
        self.tokens += output.tokens
        self.last_s = now_s
        if output.finish_reason in ("error", "deadline", "abort"):
            self.error = output.error or output.finish_reason
        if output.report is not None:
            self.drafted, self.accepted = output.report.totals()
            self.steps = output.report.steps


@dataclass(slots=True)
class Block:
    """One uninterrupted run. shed: requests that the engine's full queue refused.

    full_s, full_tokens: of a closed loop, up to the moment when nothing was left to come.
    """

    seen: list[Seen] = field(default_factory=list)
    wall_s: float = 0.0
    shed: int = 0
    full_s: float = 0.0
    full_tokens: int = 0

    @property
    def steady_tok_s(self) -> float:
        """As ``tok_s``, while all streams were taken: without the end, which the slowest decide."""
        return self.full_tokens / self.full_s

    @property
    def tok_s(self) -> float:
        """Output tokens of all requests a second of the whole run, prompts included in its time."""
        return sum(seen.tokens for seen in self.seen) / self.wall_s

    def goodput(self, ttft_s: float, tpot_s: float) -> float:
        """Requests a second that met both limits."""
        met = [
            seen
            for seen in self.seen
            if seen.error is None
            and seen.ttft_s <= ttft_s
            and (seen.tpot_s is None or seen.tpot_s <= tpot_s)
        ]
        return len(met) / self.wall_s

    def figures(self, ttft_s: float, tpot_s: float) -> dict[str, float | None]:
        """The columns of ``bench load`` that one run gives."""
        paces = [seen.tpot_s for seen in self.seen if seen.tpot_s is not None]
        drafted, steps = sum(s.drafted for s in self.seen), sum(s.steps for s in self.seen)
        accepted = sum(s.accepted for s in self.seen)
        return {
            "tok_s": self.tok_s,
            "ttft_p50_ms": 1000 * percentile([s.ttft_s for s in self.seen], 50),
            "tpot_p50_ms": 1000 * percentile(paces, 50) if paces else None,
            "tpot_p99_ms": 1000 * percentile(paces, 99) if paces else None,
            "goodput": self.goodput(ttft_s, tpot_s),
            "accepted_length": 1 + accepted / steps if steps else 1.0,
            "waste": 1 - accepted / drafted if drafted else 0.0,
        }


class Driver:
    """clock: seconds. idle: waits so many seconds where nothing is to be done."""

    def __init__(
        self, engine: Stepped, clock: Callable[[], float], idle: Callable[[float], object]
    ):
        self._engine = engine
        self._clock = clock
        self._idle = idle
        self._open: dict[str, Seen] = {}

    def closed(self, requests: Iterable[GenerationRequest], concurrency: int) -> Block:
        """As one ends the next comes; so many are in the engine at a time."""
        block, coming = Block(), iter(requests)
        start_s = self._clock()
        more = True
        while more or self._open:
            while more and len(self._open) < concurrency:
                request = next(coming, None)
                more = request is not None
                if request is not None:
                    self._add(request, self._clock(), block)
                else:
                    block.full_s = self._clock() - start_s
                    block.full_tokens = sum(seen.tokens for seen in block.seen)
            if self._open:
                self._step()
        block.wall_s = self._clock() - start_s
        return block

    def arriving(self, arrivals: Seq[tuple[float, GenerationRequest]]) -> Block:
        """Each at its second from now on, whatever else is going on; ascending."""
        block, start_s = Block(), self._clock()
        coming = 0
        while coming < len(arrivals) or self._open:
            now_s = self._clock() - start_s
            while coming < len(arrivals) and arrivals[coming][0] <= now_s:
                due_s, request = arrivals[coming]
                self._add(request, start_s + due_s, block)
                coming += 1
            if self._open:
                self._step()
            elif coming < len(arrivals):
                self._idle(arrivals[coming][0] - now_s)
        block.wall_s = self._clock() - start_s
        return block

    def _add(self, request: GenerationRequest, start_s: float, block: Block) -> None:
        try:
            self._engine.add(request)
        except Overloaded:
            block.shed += 1
            return
        self._open[request.id] = Seen(start_s)
        block.seen.append(self._open[request.id])

    def _step(self) -> None:
        outputs = self._engine.step()
        now_s = self._clock()
        for output in outputs:
            self._open[output.id].add(output, now_s)
            if output.finish_reason is not None:
                del self._open[output.id]
