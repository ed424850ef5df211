"""How numbers are written."""

from __future__ import annotations

import pytest

from agentspec.dashboard import text


@pytest.mark.parametrize(
    "function, value, expected",
    [
        (text.count, 0, "0"),
        (text.count, 9_999, "9,999"),
        (text.count, 12_345, "12.3k"),
        (text.count, 999_600, "1M"),
        (text.count, 4_560_000_000, "4.56B"),
        (text.count, None, "\u2013"),
        (text.share, 0.0, "0\u202f%"),
        (text.share, 0.00001, "<0.01\u202f%"),
        (text.share, 0.0004, "0.04\u202f%"),
        (text.share, 0.031, "3.1\u202f%"),
        (text.share, 0.724, "72\u202f%"),
        (text.share, 0.9996, "99.96\u202f%"),
        (text.share, 1.0, "100\u202f%"),
        (text.duration, 0.42, "0.42\u202fms"),
        (text.duration, 17.6, "18\u202fms"),
        (text.duration, 999.7, "1\u202fs"),
        (text.duration, 1240, "1.24\u202fs"),
        (text.duration, 59_960, "1\u202fmin 00\u202fs"),
        (text.duration, 185_000, "3\u202fmin 05\u202fs"),
        (text.usd, 0, "$0"),
        (text.usd, -250_000_000, "-$0.25"),
        (text.usd, -1_230_000, "-$0.0012"),
        (text.usd, 1, "$0.0000000010"),
        (text.usd, 1_230_000, "$0.0012"),
        (text.usd, 10_000_000, "$0.01"),
        (text.usd, 1_234_567_890_000, "$1,234.57"),
        (text.full_time, 1_800_000_000_007, "2027-01-15 08:00:00.007 UTC"),
    ],
)
def test_written(function, value, expected: str):
    assert function(value) == expected


def test_plural():
    assert [text.plural(n, "error") for n in (0, 1, 2000)] == [
        "0 errors",
        "1 error",
        "2,000 errors",
    ]


def test_the_day_is_written_when_it_is_another():
    now_ms = 1_800_000_000_000  # 2027-01-15 08:00 UTC
    assert text.clock_time(now_ms - 1000, now_ms) == "07:59:59"
    assert text.clock_time(now_ms - 86_400_000, now_ms) == "14\u00a0Jan 08:00:00"


def test_ticks_of_whole_numbers_have_no_fraction():
    assert [text.exact(value) for value in (0.0, 250.0, 1000.0, 1234)] == [
        "0",
        "250",
        "1,000",
        "1,234",
    ]
