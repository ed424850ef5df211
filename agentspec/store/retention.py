"""Deleting what is old: by time, in short transactions, so that the writer is never held up.

What goes is said first (``rollup_floor``), then taken away in pieces. Rollups outlive their rows:
hours and days answer for times whose rows are gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import Column, ColumnElement, Connection, Engine, Table, and_, delete, func, select

from . import partition
from .bulk import insert
from .errors import StoreError
from .rebuild import keep_rows
from .rollup_schema import CUBE_LEVELS, LEVELS, METRICS, hist, rollup, rollup_floor, rollup_session
from .schema import request, request_payload, tool_call

BATCH_ROWS = 2000
KINDS = ("request", "payload", *LEVELS)
_PARTITIONED = {"request": partition.MONTHLY, "payload": partition.DAILY}


class PruneError(StoreError):
    """A time before which nothing may be deleted by hand."""

    type = "invalid_request_error"
    code = "invalid_prune"


def rounded(engine: Engine, what: str, before_ms: int) -> int:
    """The time before which ``prune_once`` really deletes: whole buckets, on PostgreSQL whole
    partitions."""
    if what in LEVELS:
        return before_ms - before_ms % LEVELS[what]
    if engine.dialect.name == "postgresql":
        return partition.span(_PARTITIONED[what], before_ms).since_ms
    return before_ms


def prune_once(engine: Engine, what: str, before_ms: int, rows: int = BATCH_ROWS) -> int:
    """Delete a piece, of about ``rows`` rows, of what lies before ``before_ms`` (``rounded``); 0
    when nothing is left. One transaction. what: of ``KINDS``."""
    before_ms = rounded(engine, what, before_ms)
    with engine.begin() as connection:
        if what != "payload":
            keep_rows(connection)  # a rebuild under way is of rows that were there
            _raise_floor(connection, what, before_ms)
        if engine.dialect.name == "postgresql" and what in _PARTITIONED:
            partition.expire(connection, _PARTITIONED[what], before_ms)
        for table, column, where in _places(what):
            if count := _delete(connection, table, column, and_(where, column < before_ms), rows):
                return count
    return 0


def prune(engine: Engine, what: str, before_ms: int, pause_s: float = 0.01) -> int:
    """Delete all of it, piece by piece; returns the rows (dropped partitions are not counted)."""
    total = 0
    while count := prune_once(engine, what, before_ms):
        total += count
        time.sleep(pause_s)  # the writer's turn: SQLite's lock knows no queue
    give_back(engine)
    return total


def give_back(engine: Engine, pages: int = 2000) -> None:
    """Return free pages of SQLite's file to the file system; PostgreSQL sees to its own."""
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        # Its other ways to execute do one step of a statement without rows: one page.
        raw.cursor().executescript(f"PRAGMA incremental_vacuum({pages})")  # type: ignore[attr-defined]
    finally:
        raw.close()


def _raise_floor(connection: Connection, what: str, before_ms: int) -> None:
    known = connection.scalar(select(rollup_floor.c.since_ms).where(rollup_floor.c.what == what))
    if known is None or known < before_ms:
        clause = "ON CONFLICT (what) DO UPDATE SET since_ms = excluded.since_ms"
        insert(connection, rollup_floor, [{"what": what, "since_ms": before_ms}], clause)


def _places(what: str) -> Iterator[tuple[Table, Column, ColumnElement[bool]]]:
    """The tables of one kind, their column of time, and conditions that lead its index."""
    if what == "request":
        yield tool_call, tool_call.c.ts_ms, tool_call.c.ts_ms.is_not(None)
        yield request, request.c.ts_ms, request.c.ts_ms.is_not(None)
        last = rollup_session.c.last_ms
        yield rollup_session, last, last.is_not(None)
        return
    if what == "payload":
        yield request_payload, request_payload.c.ts_ms, request_payload.c.ts_ms.is_not(None)
        return
    for cube, levels in CUBE_LEVELS.items():
        if what in levels:
            table = rollup[what]
            yield table, table.c.bucket_ms, table.c.cube == cube
            table = hist[what]
            for metric in METRICS:
                where = and_(table.c.cube == cube, table.c.metric == metric)
                yield table, table.c.bucket_ms, where


def _delete(
    connection: Connection, table: Table, column: Column, where: ColumnElement[bool], rows: int
) -> int:
    """Delete the oldest ``rows`` of those, and all of the same time as the last of them."""
    oldest = select(column).where(where).order_by(column).limit(rows).subquery()
    until = connection.scalar(select(func.max(oldest.c[column.name])))
    if until is None:
        return 0
    return connection.execute(delete(table).where(where, column <= until)).rowcount
