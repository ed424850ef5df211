"""What a forward pass costs: by its packed rows, by its sequences, and by the context of each.

Seconds of a pass = base(all rows) + spans * span + sum over spans of attend(rows of the span) * its
context, measured at every start, the fastest kept. That one slope a context token holds for all
contexts was measured (CPU, 8 rows: 1.95 and 1.92 us a token below and above 2,048); ``pricing.py``
mends it from the steps of a running engine.
"""

from __future__ import annotations

import json
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import agentspec
from agentspec.resources import user_cache_dir

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
"""Kernels work in tiles of rows, so that the curve has steps: fine where drafts are chosen."""
ATTEND_ROWS = (1, 2, 4, 8, 16)
SPANS = 16
"""Sequences of a pass that tells what each of them adds to it."""
_FORMAT = 3
"""Of the kept files: one of another format is measured anew."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one forward pass.

    rows, seconds_at: base cost over the rows of the whole pass. attend_rows, attend_at: seconds a
    context token of one span, over the rows of that span. span_s: seconds of each span beside its
    rows and its context (its place in the pass). Rows are ascending and positive, costs never fall
    (the monotone envelope); a base cost is positive.
    """

    rows: tuple[int, ...]
    seconds_at: tuple[float, ...]
    attend_rows: tuple[int, ...] = (1,)
    attend_at: tuple[float, ...] = (0.0,)
    span_s: float = 0.0

    def __post_init__(self) -> None:
        assert self.seconds_at[0] > 0 and self.attend_at[0] >= 0 and self.span_s >= 0
        for rows, costs in ((self.rows, self.seconds_at), (self.attend_rows, self.attend_at)):
            assert rows and len(rows) == len(costs) and rows[0] > 0
            assert all(a < b for a, b in zip(rows, rows[1:], strict=False))
            assert all(a <= b for a, b in zip(costs, costs[1:], strict=False))

    @classmethod
    def of(cls, rows: Sequence[int], seconds: Sequence[float], span_s: float = 0.0) -> CostCurve:
        """From raw measurements: more rows never cost less, whatever the clock said."""
        return cls(tuple(rows), tuple(accumulate(seconds, max)), span_s=span_s)

    def seconds(self, rows: int) -> float:
        """Of a pass without context (see ``interpolate``)."""
        return interpolate(self.rows, self.seconds_at, rows)

    def attend(self, rows: int) -> float:
        """What a context token adds for a span of ``rows``, seconds."""
        return interpolate(self.attend_rows, self.attend_at, rows)


@dataclass(frozen=True, slots=True)
class Profile:
    """Fastest seconds of passes of one span, by rows, behind ``context`` tokens."""

    context: int
    rows: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        assert len(self.rows) == len(self.seconds) > 0
        assert all(a < b for a, b in zip(self.rows, self.rows[1:], strict=False))
        assert all(seconds > 0 for seconds in self.seconds)

    def lowered(self, other: Profile) -> Profile:
        if (self.context, self.rows) != (other.context, other.rows):
            return other
        return Profile(self.context, self.rows, tuple(map(min, self.seconds, other.seconds)))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a machine: passes of one span behind a short and behind a long context,
    and of as many spans as rows behind the short one (None: there was no room for them)."""

    short: Profile
    long: Profile
    apart: Profile | None = None

    def lowered(self, other: Measured) -> Measured:
        """At each point the less of two measurements: nothing but the machine's other work makes a
        pass take longer than it must. The other's where it has other points."""
        apart = other.apart
        if self.apart is not None and apart is not None:
            apart = self.apart.lowered(apart)
        return Measured(self.short.lowered(other.short), self.long.lowered(other.long), apart)

    @property
    def curve(self) -> CostCurve:
        distance = max(self.long.context - self.short.context, 1)
        behind = [
            max(seconds - interpolate(self.short.rows, self.short.seconds, rows), 0.0) / distance
            for rows, seconds in zip(self.long.rows, self.long.seconds, strict=True)
        ]
        attend = tuple(accumulate(behind, max))
        base = [
            seconds - interpolate(self.long.rows, attend, rows) * self.short.context
            for rows, seconds in zip(self.short.rows, self.short.seconds, strict=True)
        ]
        # Of a row alone at most half: the rest is a slow second of the machine.
        span_s = min(self._span_s(attend), max(0.0, base[0]) / 2)
        base = [max(seconds - span_s, 1e-9) for seconds in base]
        return CostCurve(
            self.short.rows, tuple(accumulate(base, max)), self.long.rows, attend, span_s
        )

    def _span_s(self, attend: Sequence[float]) -> float:
        """What each span more adds to a pass, by the most that were measured."""
        if self.apart is None:
            return 0.0
        count, seconds = self.apart.rows[-1], self.apart.seconds[-1]
        together = interpolate(self.short.rows, self.short.seconds, count)
        one, all_rows = (interpolate(self.long.rows, attend, rows) for rows in (1, count))
        contexts_s = (count * one - all_rows) * self.short.context
        return max(seconds - together - contexts_s, 0.0) / (count - 1)


_Point = tuple[Callable[[int, int], object], int, int]


def measure(
    forward: Callable[[int, int], object],
    apart: Callable[[int, int], object] | None = None,
    *,
    contexts: tuple[int, int] = (64, 4096),
    rows: Sequence[int] = ROWS,
    attend_rows: Sequence[int] = ATTEND_ROWS,
    spans: int = SPANS,
    repeats: int = 5,
    warm: bool = True,
    limit_s: float = 3.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Profile ``forward(n, context)``, one pass of n rows of one span behind so many tokens, and
    ``apart(n, context)``, one of n spans of a row each.

    Rounds over all points, so that a slow second of the machine falls on all of them; each keeps
    its fastest time. warm: a first round is not counted (caches warm up). Ends after ``repeats``
    counted rounds, or after ``limit_s`` seconds with at least one.
    """
    short, long = contexts
    points: list[_Point] = [(forward, n, short) for n in rows]
    points += [(forward, n, long) for n in attend_rows if n <= rows[-1]]
    if apart is not None:
        points.append((apart, spans, short))
    fastest = dict.fromkeys(points, float("inf"))
    started = clock()
    for call, count, context in points if warm else ():
        call(count, context)
    for _ in range(repeats):
        for point in points:
            call, count, context = point
            before = clock()
            call(count, context)
            fastest[point] = min(fastest[point], clock() - before)
        if clock() - started > limit_s:
            break
    one, far = (_profile(fastest, forward, context) for context in contexts)
    return Measured(one, far, None if apart is None else _profile(fastest, apart, short))


def _profile(
    fastest: dict[_Point, float], call: Callable[[int, int], object], context: int
) -> Profile:
    found = [(n, seconds) for (c, n, at), seconds in fastest.items() if (c, at) == (call, context)]
    return Profile(context, tuple(n for n, _ in found), tuple(s for _, s in found))


def interpolate(known: Sequence[int], values: Sequence[float], at: float) -> float:
    """Linear between the points; below the first point its value, beyond the last one the slope of
    the last segment (of a line through the origin where there is one point only)."""
    if at <= known[0]:
        return values[0]
    if len(known) == 1:
        return values[0] * at / known[0]
    right = min(bisect_right(known, at), len(known) - 1)
    left = right - 1
    slope = (values[right] - values[left]) / (known[right] - known[left])
    return values[left] + slope * (at - known[left])


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveKey:
    """What a measured curve is true for."""

    weights_id: str
    dtype: str
    threads: int
    cpu_model: str
    version: str
    format: int = _FORMAT

    @classmethod
    def here(cls, weights_id: str, dtype: str, threads: int) -> CurveKey:
        """The key on this machine and for this version."""
        return cls(
            weights_id=weights_id,
            dtype=dtype,
            threads=threads,
            cpu_model=_cpu_model(),
            version=agentspec.__version__,
        )

    @property
    def path(self) -> Path:
        """The file of this key in the user's cache; it need not exist."""
        text = json.dumps(asdict(self), sort_keys=True)
        return user_cache_dir() / "curves" / f"{sha256(text.encode()).hexdigest()[:32]}.json"


def save(measured: Measured, key: CurveKey) -> None:
    """Keep what was measured for the next start; the file appears whole or not at all. Raises
    OSError."""
    path = key.path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({"key": asdict(key), **asdict(measured)}, indent=1))
    partial.replace(path)


def load(key: CurveKey) -> Measured | None:
    """What was kept for ``key``; None where there is nothing or its file is damaged."""
    try:
        content = json.loads(key.path.read_text())
        short, long, apart = (content[name] for name in ("short", "long", "apart"))
        if content["key"] != asdict(key):
            return None
        return Measured(
            _profile_of(short), _profile_of(long), None if apart is None else _profile_of(apart)
        )
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None  # a cache: whoever asks measures again


def _profile_of(kept: dict[str, Any]) -> Profile:
    return Profile(kept["context"], tuple(kept["rows"]), tuple(kept["seconds"]))


def _cpu_model() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
