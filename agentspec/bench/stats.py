"""Small statistics of a bench: percentiles, spread, and the detector of looping text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence as Seq

LOOP_PERIOD_MOST = 64
LOOP_REPEATS = 4
LOOP_TOKENS_LEAST = 24


def percentile(values: Seq[float], percent: float) -> float:
    """Linear interpolation between the nearest ranks. ``values`` holds at least one."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Seq[float]) -> dict[str, float] | None:
    """Median and both ends; None of nothing."""
    if not values:
        return None
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def looping(tokens: Seq[int]) -> bool:
    """Whether one block of at most 64 tokens stands four times (24 tokens or more) in a row.

    Speculation races through such text: a run that holds it says nothing about real work.
    """
    for period in range(1, min(LOOP_PERIOD_MOST, len(tokens) // 2) + 1):
        needed = max((LOOP_REPEATS - 1) * period, LOOP_TOKENS_LEAST - period)
        run = 0
        for i in range(period, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - period] else 0
            if run >= needed:
                return True
    return False
