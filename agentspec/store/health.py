"""Whether what lies in the database is sound: its file, and rollups against rows."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import DatabaseError

from .dates import is_date
from .rebuild import floors
from .rollup_schema import CUBE_LEVELS, CUBES, DAY_MS, rollup
from .schema import request
from .window import total

LISTED = 10
"""So many days that differ are named; of more it is told how many."""


def problems(connection: Connection) -> list[str]:
    """What is wrong, a line each; empty: nothing found. One snapshot, reads all times of requests.

    Counted are days whose rows were never pruned.
    """
    try:
        return [*_file(connection), *_rollups(connection)]
    except DatabaseError as error:
        return [f"it cannot be read: {getattr(error, 'orig', None) or error}"]


def _file(connection: Connection) -> list[str]:
    if connection.dialect.name != "sqlite":
        return []
    found = connection.execute(text("PRAGMA quick_check(10)")).scalars().all()
    return [] if found == ["ok"] else [f"the file: {line}" for line in found]


def _rollups(connection: Connection) -> list[str]:
    """Days whose rows and rollups, by any level and cube, count different requests."""
    known = floors(connection)
    since_ms = known.get("request", 0)
    since_ms += -since_ms % DAY_MS
    c = request.c
    rows = _by_day(connection, c.ts_ms, func.count(), c.ts_ms >= since_ms)
    lines = []
    for level, table in rollup.items():
        start_ms = max(since_ms, known.get(level, 0))
        start_ms += -start_ms % DAY_MS
        t = table.c
        for cube in CUBES:
            if level not in CUBE_LEVELS[cube]:
                continue
            where = (t.bucket_ms >= start_ms) & (t.cube == cube)
            cells = _by_day(connection, t.bucket_ms, total(t.requests), where)
            there = {day: count for day, count in rows.items() if day >= start_ms}
            wrong = sorted(d for d in there | cells if there.get(d, 0) != cells.get(d, 0))
            lines += [
                f"{_day(day)}: {there.get(day, 0):,} requests, {cells.get(day, 0):,} of them "
                f"in the rollups by {level} (cube {cube}); 'agentspec db rebuild-rollups' mends it"
                for day in wrong[:LISTED]
            ]
            if len(wrong) > LISTED:
                lines.append(f"{len(wrong) - LISTED:,} more days by {level} (cube {cube})")
    return lines


def _by_day(connection: Connection, at, count, where) -> dict[int, int]:
    day = at - at % DAY_MS
    query = select(day, count).where(where).group_by(day)
    return {at: n for at, n in connection.execute(query) if n}


def _day(ts_ms: int) -> str:
    return f"{datetime.fromtimestamp(ts_ms / 1000, UTC):%Y-%m-%d}" if is_date(ts_ms) else str(ts_ms)
