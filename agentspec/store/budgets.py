"""Kinds of limits, their units, and the periods in which they count (UTC)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

RPM, TPM, CONCURRENCY = "rpm", "tpm", "concurrency"
USD_DAY, USD_MONTH, USD_TOTAL = "usd_day", "usd_month", "usd_total"
BUDGETS = (USD_DAY, USD_MONTH, USD_TOTAL)
KINDS = (RPM, TPM, CONCURRENCY, *BUDGETS)
"""rpm: requests a minute; tpm: tokens a minute; concurrency: requests at once; usd_*: nano-USD a
day, a month, or in all."""

MOST = 2**62 - 1
"""The largest amount: what a database's whole numbers hold, with room to add."""

_MINUTE_MS = 60_000


def bounded(amount: int) -> int:
    """An amount as it can be counted: from nothing to ``MOST``. Backends tell what they like."""
    return max(0, min(amount, MOST))


@dataclass(frozen=True, slots=True)
class Limit:
    """What an owner (``key:ID`` or ``project:NAME``) may use in a period of a kind."""

    owner: str
    kind: str
    amount: int


@dataclass(frozen=True, slots=True)
class Period:
    """From ``start_ms`` (inclusive) to ``end_ms`` (exclusive; None: without end)."""

    start_ms: int
    end_ms: int | None


ALWAYS = Period(0, None)


def period(kind: str, now_ms: int) -> Period:
    """The period of a kind that ``now_ms`` falls into: a clock minute, a day or a month of UTC, or
    all time."""
    if kind in (RPM, TPM):
        start_ms = now_ms - now_ms % _MINUTE_MS
        return Period(start_ms, start_ms + _MINUTE_MS)
    if kind not in (USD_DAY, USD_MONTH):
        return ALWAYS
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = at.replace(hour=0, minute=0, second=0, microsecond=0)
    end = start + timedelta(days=1)
    if kind == USD_MONTH:
        start = start.replace(day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    return Period(_ms(start), _ms(end))


def _ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000
