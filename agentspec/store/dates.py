"""Which dates can be entered: no clock and no calendar in between has trouble with these."""

from __future__ import annotations

LATEST_MS = 7_258_118_400_000
"""The start of 2200; the first is the start of 1970, 0."""
EXPECTED = "a date from 1970 to 2199"


def nearest(ts_ms: int) -> int:
    """The nearest millisecond of such a date: a clock may be wrong beyond any calendar."""
    return max(0, min(ts_ms, LATEST_MS - 1))


def is_date(ts_ms: int) -> bool:
    """Whether milliseconds UTC are of such a date."""
    return 0 <= ts_ms < LATEST_MS
