"""``bench load``: one engine under rising load, one way of scheduling speculation beside the other.

Every round runs all modes on the same requests, in an order drawn anew; a mode is compared with
"off" of its own round, so that a slow minute of the machine falls on both. Rounds give intervals.
The first round of each mode is not counted: its estimates are young, caches are cold.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.settings import load as load_settings
from agentspec.wire.chat import decode_request, encode

from . import padding, report
from .load_cases import Arrival, mixed, read_trace
from .load_drive import Block, Driver
from .stats import percentile

if TYPE_CHECKING:
    from agentspec.engine.build import Built
    from agentspec.engine.request import GenerationRequest

    from .simulate_machine import Clock
    from .workloads import Prompt

OFF = "off"
COLUMNS = [
    "mode",
    "concurrency",
    "tok_s",
    "over_off",
    "over_off_low",
    "over_off_high",
    "ttft_p50_ms",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "goodput",
    "accepted_length",
    "waste",
    "n",
    "rounds",
]
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Plan:
    """count: requests of a block for each stream. ttft_ms, tpot_ms: what goodput asks for.

    context: tokens that prompts are brought to; 0: as they are. speed: of a trace's clock. curve:
    of another machine (``simulate_presets``), by which passes are booked instead of timed.
    """

    modes: Seq[str]
    concurrency: Seq[int]
    workloads: Seq[str]
    count: int = 3
    rounds: int = 5
    max_tokens: int = 96
    context: int = 0
    ttft_ms: float = 2000.0
    tpot_ms: float = 50.0
    trace: str | None = None
    divisor: float = 4.0
    speed: float = 1.0
    data: str | None = None
    config: str | None = None
    curve: str | None = None
    threads: int = 0
    seed: int = 0

    @classmethod
    def of(cls, args: argparse.Namespace) -> Plan:
        named = {name: getattr(args, name) for name in cls.__dataclass_fields__}
        return cls(**named)


class Rig:
    """An engine in this process, and requests for it."""

    def __init__(self, plan: Plan, built: Built, clock: Clock | None = None):
        self._plan = plan
        self._planner = built.planner
        self._numbers = itertools.count()
        self.engine = built.engine
        now, idle = (clock.seconds, clock.book) if clock else (time.perf_counter, time.sleep)
        self.driver = Driver(built.engine, now, idle)

    @classmethod
    def start(cls, plan: Plan) -> Rig:
        """Raises ``SettingsError`` or ``ModelError``."""
        from agentspec.engine.build import build

        settings = load_settings(plan.config).engine
        settings.threads = plan.threads or settings.threads
        most = max(plan.concurrency)
        settings.max_sequences = max(settings.max_sequences, most)
        settings.kv_tokens = max(settings.kv_tokens, 2048 * most)
        if plan.curve is None:
            return cls(plan, build(settings))
        from .simulate_machine import Clock, Priced
        from .simulate_presets import CURVES

        clock, curve = Clock(), CURVES[plan.curve]
        built = build(
            settings, lambda runner: Priced(runner, curve, clock), curve=curve, clock=clock
        )
        return cls(plan, built, clock)

    def request(self, prompt: Prompt, context: int, max_tokens: int) -> GenerationRequest:
        """Of a scope of its own: nothing of one run is found in the cache by the next."""
        body = prompt.body
        most = self._planner.context_tokens - max_tokens
        if context:
            seed = sum(prompt.id.encode())
            context = min(context, most)
            body = padding.fitted(body, prompt.workload, self._count, context, seed)
        request = self._planned(body, max_tokens)
        scope = f"load-{next(self._numbers)}"
        return replace(request, cache_scope=scope, session=None)

    def _count(self, body: dict[str, Any]) -> int:
        return len(self._planned(body, 1).prompt)

    def _planned(self, body: dict[str, Any], max_tokens: int) -> GenerationRequest:
        body = body | {
            "model": self._planner.model,
            "temperature": 0,
            "max_tokens": max_tokens,
            "agentspec": {"speculation": "auto"},
        }
        return self._planner.plan(decode_request(encode(body)), time.monotonic()).sequences[0]

    def requests(self, count: int) -> Iterator[GenerationRequest]:
        """The same ``count`` mixed requests for every block."""
        plan = self._plan
        folder = None if plan.data is None else Path(plan.data)
        prompts = mixed(plan.workloads, plan.seed, folder)
        for prompt in itertools.islice(prompts, count):
            yield self.request(prompt, plan.context, plan.max_tokens)

    def arrivals(self, trace: Seq[Arrival]) -> list[tuple[float, GenerationRequest]]:
        folder = None if self._plan.data is None else Path(self._plan.data)
        prompts = mixed(self._plan.workloads, self._plan.seed, folder)
        return [
            (arrival.at_s, self.request(prompt, arrival.prompt_tokens, arrival.out_tokens))
            for arrival, prompt in zip(trace, prompts, strict=False)
        ]

    def block(self, mode: str, concurrency: int, trace: Seq[Arrival] | None) -> Block:
        """One run of one mode. concurrency is without a meaning where a trace drives."""
        self.engine.speculation_mode = mode
        if trace is not None:
            arrivals = self.arrivals(trace)
            if mode == OFF:
                arrivals = [(at_s, plain(request)) for at_s, request in arrivals]
            return self.driver.arriving(arrivals)
        requests = list(self.requests(self._plan.count * concurrency))
        if mode == OFF:
            requests = [plain(request) for request in requests]
        return self.driver.closed(requests, concurrency)


def plain(request: GenerationRequest) -> GenerationRequest:
    """The same without sources: "off" is plain decoding, which keeps no text for drafts either."""
    return replace(request, sources=())


def run(plan: Plan) -> dict[str, Any]:
    """The bench's document; ``figure`` in it is the plot of the cliff, as SVG."""
    from .load_plot import cliff

    rig = Rig.start(plan)
    trace = None
    if plan.trace is not None:
        trace = read_trace(Path(plan.trace), plan.divisor, plan.count, plan.speed)
    results: list[dict[str, Any]] = []
    for concurrency in plan.concurrency if trace is None else (0,):
        rounds = list(_rounds(rig, plan, concurrency, trace))
        results += summary(rounds, plan, concurrency)
    return report.build(results, divisor=plan.divisor if trace else None, figure=cliff(results))


def _rounds(
    rig: Rig, plan: Plan, concurrency: int, trace: Seq[Arrival] | None
) -> Iterator[dict[str, Block]]:
    """All modes' blocks of each counted round."""
    modes = list(dict.fromkeys((OFF, *plan.modes)))
    draw = random.Random(plan.seed + concurrency)
    for number in range(plan.rounds + 1):
        blocks = {}
        for mode in draw.sample(modes, len(modes)):
            blocks[mode] = rig.block(mode, concurrency, trace)
            report.progress(
                f"concurrency {concurrency}, round {number} of {plan.rounds}, {mode}: "
                f"{blocks[mode].tok_s:.1f} tok/s"
            )
        if number:
            yield blocks


def summary(rounds: Seq[dict[str, Block]], plan: Plan, concurrency: int) -> list[dict[str, Any]]:
    """A row a mode: medians over rounds; the median ratio to "off" with its 95 % interval."""
    rows = []
    for mode in rounds[0]:
        figures = [r[mode].figures(plan.ttft_ms / 1000, plan.tpot_ms / 1000) for r in rounds]
        ratios = [r[mode].tok_s / r[OFF].tok_s for r in rounds]
        low, high = interval(ratios, plan.seed)
        row = {name: _median([f[name] for f in figures]) for name in figures[0]}
        rows.append(
            {"mode": mode, "concurrency": concurrency, **row}
            | {"over_off": statistics.median(ratios), "over_off_low": low, "over_off_high": high}
            | {"n": len(rounds[0][mode].seen), "rounds": len(rounds)}
            | {"shed": sum(r[mode].shed for r in rounds)}
        )
    return sorted(rows, key=lambda row: (row["mode"] != OFF, str(row["mode"])))


def interval(values: Seq[float], seed: int = 0) -> tuple[float, float]:
    """95 % interval of the median, by resampling (Efron's percentile bootstrap)."""
    draw = random.Random(seed)
    medians = [statistics.median(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return percentile(medians, 2.5), percentile(medians, 97.5)


def _median(values: Seq[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
