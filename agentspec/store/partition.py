"""PostgreSQL's partitions: requests by month, payloads by day (UTC), a default one for strays.

Made ahead of time and dropped whole when they are over; ``upkeep`` does both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, text

from .rollup_schema import DAY_MS

MONTHLY, DAILY = "request", "request_payload"


@dataclass(frozen=True, slots=True)
class Span:
    """A partition's name and the ``ts_ms`` it takes, from ``since_ms`` to before ``until_ms``."""

    name: str
    since_ms: int
    until_ms: int


def span(table: str, ts_ms: int) -> Span:
    """The partition of ``table`` that a row of that time belongs into."""
    at = datetime.fromtimestamp(ts_ms // 1000, UTC)
    if table == DAILY:
        since_ms = ts_ms - ts_ms % DAY_MS
        return Span(f"{table}_p{at:%Y%m%d}", since_ms, since_ms + DAY_MS)
    first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    next_ = (first + timedelta(days=32)).replace(day=1)
    return Span(f"{table}_p{at:%Y%m}", _ms(first), _ms(next_))


def _ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000


def ensure(connection: Connection, table: str, now_ms: int) -> list[str]:
    """Make the partitions of now and of the time after; returns the names of new ones.

    Rows that the default partition took for them meanwhile move over.
    """
    made = []
    current = span(table, now_ms)
    there = {part.name for part in existing(connection, table)}
    for part in (current, span(table, current.until_ms)):
        if part.name not in there:
            _make(connection, table, part)
            made.append(part.name)
    return made


def _make(connection: Connection, table: str, part: Span) -> None:
    limits = f"ts_ms >= {part.since_ms} AND ts_ms < {part.until_ms}"
    for statement in (
        f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE",
        f"CREATE TABLE {part.name} (LIKE {table} INCLUDING DEFAULTS)",
        f"WITH moved AS (DELETE FROM {table}_default WHERE {limits} RETURNING *) "
        f"INSERT INTO {part.name} SELECT * FROM moved",
        f"ALTER TABLE {table} ATTACH PARTITION {part.name} "
        f"FOR VALUES FROM ({part.since_ms}) TO ({part.until_ms})",
    ):
        connection.execute(text(statement))


def expire(connection: Connection, table: str, before_ms: int) -> list[str]:
    """Drop the partitions that end at ``before_ms`` or earlier; returns their names."""
    over = [part.name for part in existing(connection, table) if part.until_ms <= before_ms]
    for name in over:
        connection.execute(text(f"DROP TABLE {name}"))
    return over


def existing(connection: Connection, table: str) -> list[Span]:
    """The partitions there are, without the default one."""
    children = "SELECT inhrelid::regclass::text FROM pg_inherits"
    query = text(f"{children} WHERE inhparent = CAST(:parent AS regclass)")
    names = connection.execute(query, {"parent": table}).scalars()
    return list(_spans(table, sorted(names)))


def _spans(table: str, names: list[str]) -> Iterator[Span]:
    for name in names:
        digits = name.removeprefix(f"{table}_p")
        if digits.isdigit():
            form = "%Y%m%d" if table == DAILY else "%Y%m"
            yield span(table, _ms(datetime.strptime(digits, form).replace(tzinfo=UTC)))
