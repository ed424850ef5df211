"""How the time a token takes, and throughput, go with the number of requests in flight.

Read from the rows' own times: a request is in flight from when it was taken in until its end.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ARMS = ("on", "off", "mixed")
"""By ``spec_window``: the engine speculated, did without all the while, or changed meanwhile (or
has no such windows)."""


@dataclass(frozen=True, slots=True)
class Run:
    """A request: its times in ms, tpot None where it isn't known."""

    start_ms: float
    end_ms: float
    out_tok: int
    tpot_ms: float | None
    arm: str


@dataclass(slots=True)
class Band:
    """Concurrency from ``low`` to ``high``. runs: requests that met it when they were taken in;
    tpot_ms: theirs, by arm. busy_ms, tokens: of all time at that concurrency, by arm; time in which
    not all in flight are of one arm counts as "mixed"."""

    low: int
    high: int
    runs: int = 0
    tpot_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy_ms: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def title(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def median_tpot_ms(self, arm: str) -> float | None:
        found = self.tpot_ms.get(arm)
        return statistics.median(found) if found else None

    def tok_s(self, arm: str) -> float | None:
        """Tokens per second of all requests together."""
        busy = self.busy_ms.get(arm, 0.0)
        return 1000 * self.tokens[arm] / busy if busy else None

    @property
    def all_tok_s(self) -> float | None:
        busy = sum(self.busy_ms.values())
        return 1000 * sum(self.tokens.values()) / busy if busy else None


def bands(runs: Iterable[Run]) -> list[Band]:
    """Bands 1, 2, 3 to 4, 5 to 8, ... up to the highest concurrency there was; those in between
    that nothing met are left out. A request's tokens count evenly over its time."""
    lasting = sorted((r for r in runs if r.end_ms > r.start_ms), key=lambda r: r.start_ms)
    found: dict[int, Band] = {}
    flying: dict[str, int] = dict.fromkeys(ARMS, 0)
    rate, at = 0.0, 0.0
    for ms, kind, run in _events(lasting):
        count = sum(flying.values())
        if count and ms > at:
            arm = next((arm for arm in ARMS if flying[arm] == count), "mixed")
            band = _band(found, count)
            band.busy_ms[arm] += ms - at
            band.tokens[arm] += rate * (ms - at)
        at = ms
        share = run.out_tok / (run.end_ms - run.start_ms)
        flying[run.arm] += kind
        rate += kind * share
        if kind > 0:
            met = _band(found, sum(flying.values()))
            met.runs += 1
            if run.tpot_ms is not None:
                met.tpot_ms[run.arm].append(run.tpot_ms)
    return [found[key] for key in sorted(found)]


def merged(parts: Iterable[Sequence[Band]]) -> list[Band]:
    """Bands of several backends, each of which counted its own requests in flight, as one list:
    ``tok_s`` is then that of one backend while so many ran there. Changes none of them."""
    found: dict[int, Band] = {}
    for band in (band for part in parts for band in part):
        into = found.setdefault(band.high, Band(band.low, band.high))
        into.runs += band.runs
        for arm in ARMS:
            into.tpot_ms[arm] += band.tpot_ms.get(arm, [])
            into.busy_ms[arm] += band.busy_ms.get(arm, 0.0)
            into.tokens[arm] += band.tokens.get(arm, 0.0)
    return [found[key] for key in sorted(found)]


def run_of(
    ts_ms: int, e2e_ms: float, out_tok: int, tpot_ms: float | None, window: str | None
) -> Run:
    """The run of a row's columns."""
    return Run(ts_ms, ts_ms + e2e_ms, out_tok, tpot_ms, window if window in ARMS else "mixed")


def _events(runs: Sequence[Run]) -> list[tuple[float, int, Run]]:
    """Starts (1) and ends (-1) in order of time; at the same time, ends come first."""
    events = [(run.start_ms, 1, run) for run in runs] + [(run.end_ms, -1, run) for run in runs]
    return sorted(events, key=lambda event: event[:2])


def _band(found: dict[int, Band], count: int) -> Band:
    high = 1 << (count - 1).bit_length()
    low = high // 2 + 1
    return found.setdefault(high, Band(low, high))
