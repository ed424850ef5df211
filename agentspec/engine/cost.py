"""What a forward pass costs by its number of rows: measured at every start, the fastest is kept."""

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

import agentspec
from agentspec.resources import user_cache_dir

ROWS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one forward pass over its number of rows.

    rows: ascending, positive. seconds: positive, never falling (the monotone envelope).
    """

    rows: tuple[int, ...]
    seconds_at: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.rows and len(self.rows) == len(self.seconds_at)
        assert self.rows[0] > 0 and all(
            a < b for a, b in zip(self.rows, self.rows[1:], strict=False)
        )
        times = self.seconds_at
        assert times[0] > 0 and all(a <= b for a, b in zip(times, times[1:], strict=False))

    @classmethod
    def of(cls, rows: Sequence[int], seconds: Sequence[float]) -> CostCurve:
        """From raw measurements: more rows never cost less, whatever the clock said."""
        return cls(tuple(rows), tuple(accumulate(seconds, max)))

    def lowered(self, other: CostCurve) -> CostCurve:
        """At each point the less of two measurements: nothing but the machine's other work makes a
        pass take longer than it must. ``other`` itself where it has other points."""
        if self.rows != other.rows:
            return other
        pairs = zip(self.seconds_at, other.seconds_at, strict=True)
        return CostCurve(self.rows, tuple(min(pair) for pair in pairs))

    def seconds(self, rows: int) -> float:
        """Interpolated linearly; below the first point its value, beyond the last one the slope of
        the last segment (of a line through the origin where there is one point only)."""
        known, times = self.rows, self.seconds_at
        if rows <= known[0]:
            return times[0]
        if len(known) == 1:
            return times[0] * rows / known[0]
        right = min(bisect_right(known, rows), len(known) - 1)
        left = right - 1
        slope = (times[right] - times[left]) / (known[right] - known[left])
        return times[left] + slope * (rows - known[left])

    @classmethod
    def measure(
        cls,
        forward: Callable[[int], object],
        *,
        rows: Sequence[int] = ROWS,
        repeats: int = 5,
        limit_s: float = 3.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> CostCurve:
        """Profile ``forward(n)``, one pass of n rows at the context that stands for the traffic.

        Rounds over all ``rows``, so that a slow second of the machine falls on all of them; each
        keeps its fastest time. The first round is not counted (caches warm up). Ends after
        ``repeats`` counted rounds, or after ``limit_s`` seconds with at least one.
        """
        started = clock()
        for count in rows:
            forward(count)
        fastest = [float("inf")] * len(rows)
        for _ in range(repeats):
            for i, count in enumerate(rows):
                before = clock()
                forward(count)
                fastest[i] = min(fastest[i], clock() - before)
            if clock() - started > limit_s:
                break
        return cls.of(rows, fastest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveKey:
    """What a measured curve is true for."""

    weights_id: str
    dtype: str
    threads: int
    cpu_model: str
    version: str

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


def save(curve: CostCurve, key: CurveKey) -> None:
    """Keep ``curve`` for the next start; the file appears whole or not at all. Raises OSError."""
    path = key.path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    content = {"key": asdict(key), "rows": curve.rows, "seconds": curve.seconds_at}
    partial.write_text(json.dumps(content, indent=1))
    partial.replace(path)


def load(key: CurveKey) -> CostCurve | None:
    """The curve kept for ``key``; None where there is none or its file is damaged."""
    try:
        content = json.loads(key.path.read_text())
        if content["key"] != asdict(key):
            return None
        return CostCurve(tuple(content["rows"]), tuple(content["seconds"]))
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None  # a cache: whoever asks measures again


def _cpu_model() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
