"""Periods against the calendar of the standard library."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from agentspec.store.budgets import KINDS, period


def ms(*at: int) -> int:
    return int(datetime(*at, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "now", "start", "end"),
    [
        ("rpm", (2026, 7, 4, 23, 59, 59), (2026, 7, 4, 23, 59), (2026, 7, 5)),
        ("tpm", (2026, 7, 4, 12, 0, 0), (2026, 7, 4, 12, 0), (2026, 7, 4, 12, 1)),
        ("usd_day", (2028, 2, 29, 5), (2028, 2, 29), (2028, 3, 1)),
        ("usd_month", (2028, 2, 29, 5), (2028, 2, 1), (2028, 3, 1)),
        ("usd_month", (2026, 12, 31, 23, 59, 59), (2026, 12, 1), (2027, 1, 1)),
    ],
)
def test_calendar(kind, now, start, end):
    found = period(kind, ms(*now) + 999)
    assert (found.start_ms, found.end_ms) == (ms(*start), ms(*end))


def test_periods_follow_each_other_without_a_gap():
    rng = random.Random(0)
    for kind in KINDS:
        for _ in range(500):
            now_ms = rng.randrange(ms(2000, 1, 1), ms(2100, 1, 1))
            found = period(kind, now_ms)
            if found.end_ms is None:
                assert kind in ("concurrency", "usd_total") and found.start_ms == 0
                continue
            assert found.start_ms <= now_ms < found.end_ms
            assert period(kind, found.end_ms).start_ms == found.end_ms
            assert period(kind, found.start_ms - 1).end_ms == found.start_ms
