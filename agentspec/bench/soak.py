"""``bench soak``: minutes of mixed load with random aborts, and what must not happen meanwhile.

After every step the engine's pages, queues and sequences must agree; memory must not grow once it
is warm; every request that was not aborted must end as it should; the longest wait is told.
"""

from __future__ import annotations

import itertools
import random
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import report
from .load import Plan, Rig
from .load_cases import mixed

if TYPE_CHECKING:
    from agentspec.engine.core import Engine

    from .workloads import Prompt

COLUMNS = [
    "minutes",
    "requests",
    "aborted",
    "failed",
    "steps",
    "longest_wait_s",
    "longest_gap_s",
    "rss_warm_mib",
    "rss_end_mib",
]
_ABORTED = 0.2
_WARM_SHARE = 0.25
_CHECK_EVERY = 16


@dataclass(slots=True)
class Soak:
    """Counts of one run. waits: seconds from a request's arrival to its first token."""

    requests: int = 0
    aborted: int = 0
    failed: list[str] = field(default_factory=list)
    steps: int = 0
    longest_wait_s: float = 0.0
    longest_gap_s: float = 0.0


@dataclass(slots=True)
class _Open:
    start_s: float
    abort_s: float | None
    last_s: float | None = None


def run(minutes: float, concurrency: int, seed: int, config: str | None) -> dict[str, Any]:
    """Raises ``AssertionError`` where the engine's state does not agree with itself."""
    workloads = ("tool", "edit", "code", "chat")
    plan = Plan(("adaptive",), (concurrency,), workloads, max_tokens=128, config=config, seed=seed)
    rig = Rig.start(plan)
    end_s = time.monotonic() + 60 * minutes
    warm_s = end_s - 60 * minutes * (1 - _WARM_SHARE)
    soak, warm_mib = Soak(), 0.0
    prompts = mixed(workloads, seed)
    loop = _Loop(rig, soak, concurrency, random.Random(seed))
    for told in itertools.count():
        now_s = time.monotonic()
        if now_s > warm_s and not warm_mib:
            warm_mib = _rss_mib()
        loop.step(prompts, filling=now_s < end_s)
        if not loop.open and now_s >= end_s:
            break
        if told % 500 == 0:
            report.progress(f"{soak.requests} requests, {soak.aborted} aborted, {soak.steps} steps")
    rig.engine.check_integrity()
    row = {
        "minutes": minutes,
        "requests": soak.requests,
        "aborted": soak.aborted,
        "failed": len(soak.failed),
        "steps": soak.steps,
        "longest_wait_s": soak.longest_wait_s,
        "longest_gap_s": soak.longest_gap_s,
        "rss_warm_mib": warm_mib,
        "rss_end_mib": _rss_mib(),
    }
    return report.build([row], failures=soak.failed[:20])


class _Loop:
    """Keeps the engine full, gives up some requests at random moments, and looks at the rest."""

    def __init__(self, rig: Rig, soak: Soak, concurrency: int, draw: random.Random):
        self._rig, self._soak, self._draw = rig, soak, draw
        self._concurrency = concurrency
        self.open: dict[str, _Open] = {}

    @property
    def _engine(self) -> Engine:
        return self._rig.engine

    def step(self, prompts: Any, *, filling: bool) -> None:
        while filling and len(self.open) < self._concurrency:
            self._add(next(prompts))
        now_s = time.monotonic()
        for id, one in self.open.items():
            if one.abort_s is not None and now_s >= one.abort_s:
                self._engine.abort(id)
                one.abort_s = None
                self._soak.aborted += 1
        for output in self._engine.step():
            self._told(output)
        self._soak.steps += 1
        if self._soak.steps % _CHECK_EVERY == 0:
            self._engine.check_integrity()

    def _add(self, prompt: Prompt) -> None:
        request = self._rig.request(prompt, 0, self._draw.randint(1, 128))
        request.priority = self._draw.choice((-1, 0, 0, 1))
        request.cache_scope = f"tenant{self._draw.randint(0, 2)}"
        request.session = f"session{self._draw.randint(0, 5)}"
        start_s = time.monotonic()
        gives_up = self._draw.random() < _ABORTED
        self.open[request.id] = _Open(
            start_s, start_s + self._draw.expovariate(1) if gives_up else None
        )
        self._engine.add(request)
        self._soak.requests += 1

    def _told(self, output: Any) -> None:
        soak, one, now_s = self._soak, self.open[output.id], time.monotonic()
        if output.tokens:
            if one.last_s is None:
                soak.longest_wait_s = max(soak.longest_wait_s, now_s - one.start_s)
            else:
                soak.longest_gap_s = max(soak.longest_gap_s, now_s - one.last_s)
            one.last_s = now_s
        if output.finish_reason is not None:
            del self.open[output.id]
            if output.finish_reason not in ("stop", "length", "abort"):
                soak.failed.append(f"{output.finish_reason}: {output.error}")


def _rss_mib() -> float:
    """Resident memory now (Linux), else the most there ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 2**20 if sys.platform == "darwin" else most / 2**10
