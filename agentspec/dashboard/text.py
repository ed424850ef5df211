"""Numbers and times as people read them. ``None`` is a dash: not known is not zero."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

UNKNOWN = "\u2013"


def count(value: float | None) -> str:
    """1,234 up to five digits, then 12.3k, 4.56M, 7.89B."""
    if value is None:
        return UNKNOWN
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for limit, unit in ((1e6, "k"), (1e9, "M"), (1e12, "B")):
        scaled = value / (limit / 1000)
        if abs(scaled) < 999.5:
            return f"{scaled:.3g}{unit}"
    return f"{value / 1e12:.3g}T"


def exact(value: float | None) -> str:
    """1,234,567, of a whole number; an axis has them as floats."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def plural(value: int, noun: str) -> str:
    """1 error, 2 errors."""
    return f"{exact(value)} {noun}{'' if value == 1 else 's'}"


def share(value: float | None) -> str:
    """A share of 1 as per cent: 0 %, <0.01 %, 0.04 %, 3.1 %, 72 %, 100 %."""
    if value is None:
        return UNKNOWN
    percent = 100 * value
    if percent in (0, 100):
        return f"{percent:.0f}\u202f%"
    if 0 < percent < 0.005:
        return "<0.01\u202f%"
    digits = 2 if percent < 1 or percent > 99 else 1 if percent < 10 or percent > 90 else 0
    return f"{percent:.{digits}f}\u202f%"


def decimal(value: float | None, digits: int = 2) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def duration(ms: float | None) -> str:
    """0.42 ms, 18 ms, 1.24 s, 3 min 05 s."""
    if ms is None:
        return UNKNOWN
    if ms < 10:
        return f"{ms:.2g}\u202fms"
    if ms < 999.5:
        return f"{ms:.0f}\u202fms"
    seconds = ms / 1000
    if seconds < 59.95:
        return f"{seconds:.3g}\u202fs"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}\u202fmin {seconds:02d}\u202fs"


WHOLE = (count, exact)
"""Forms of numbers that have no fraction."""


def usd(nusd: int | None) -> str:
    """Nano-USD as dollars: two decimals, or two significant digits below a cent."""
    if nusd is None:
        return UNKNOWN
    if nusd == 0:
        return "$0"
    sign, dollars = "-" if nusd < 0 else "", abs(Decimal(nusd)) / 1_000_000_000
    if dollars >= Decimal("0.01"):
        return f"{sign}${dollars:,.2f}"
    digits = -dollars.adjusted() + 1
    return f"{sign}${dollars:.{digits}f}"


def moment(ts_ms: int) -> datetime:
    return datetime.fromtimestamp(ts_ms / 1000, UTC)


def clock_time(ts_ms: int, now_ms: int) -> str:
    """13:05:09 of the running day, else 30 Nov 13:05:09."""
    at, now = moment(ts_ms), moment(now_ms)
    day = "" if at.date() == now.date() else f"{at.day}\u00a0{at:%b} "
    return f"{day}{at:%H:%M:%S}"


def full_time(ts_ms: int) -> str:
    """2026-11-30 13:05:09.123 UTC."""
    at = moment(ts_ms)
    return f"{at:%Y-%m-%d %H:%M:%S}.{ts_ms % 1000:03d} UTC"
