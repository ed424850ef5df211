"""The rollups made anew from the rows: after a migration that asks for it, or by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, and_, delete, or_, select, text

from .cells import Additions, lock
from .rollup_schema import DAY_MS, hist, rollup, rollup_floor, rollup_session
from .schema import request

log = logging.getLogger(__name__)

CHUNK_ROWS = 20_000
_ADVISORY_LOCK = 0x61676E77


def floors(connection: Connection) -> dict[str, int]:
    """From when on things are complete, by name (see ``rollup_floor``); missing: from the start."""
    return {row.what: row.since_ms for row in connection.execute(select(rollup_floor))}


def keep_rows(connection: Connection) -> None:
    """Until the transaction's end nobody else prunes or rebuilds (on SQLite nobody can anyhow).

    Not the cells' lock: writers hold the table when they wait for that, and pruning wants it too.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})


def rebuild_if_asked(connection: Connection) -> int:
    """Rebuild where a migration left word to; returns the rows read."""
    asked = delete(rollup_floor).where(rollup_floor.c.what == "rebuild")
    return rebuild(connection) if connection.execute(asked).rowcount else 0


def rebuild(connection: Connection, told: Callable[[int], Any] | None = None) -> int:
    """Make all cells anew that the rows still cover; returns the rows read.

    Cells of days whose rows are pruned stay as they are, sessions that ended in them too. Sessions
    that reach beyond that are counted from there on. ``told``: called with the rows read so far.
    """
    keep_rows(connection)
    lock(connection)
    since_ms = floors(connection).get("request", 0)
    since_ms += -since_ms % DAY_MS
    for table in (*rollup.values(), *hist.values()):
        connection.execute(delete(table).where(table.c.bucket_ms >= since_ms))
    connection.execute(delete(rollup_session).where(rollup_session.c.last_ms >= since_ms))
    c = request.c
    after: tuple[int, str] = (since_ms, "")
    done = 0
    query = select(request).order_by(c.ts_ms, c.id).limit(CHUNK_ROWS)
    while True:
        ts_ms, id = after
        where = or_(c.ts_ms > ts_ms, and_(c.ts_ms == ts_ms, c.id > id))
        rows = connection.execute(query.where(c.ts_ms >= ts_ms, where)).mappings().all()
        if not rows:
            return done
        adding = Additions()
        for row in rows:
            adding.take(row)  # type: ignore[arg-type]  # RowMapping: str keys
        adding.write(connection)
        after = (rows[-1]["ts_ms"], rows[-1]["id"])
        done += len(rows)
        log.info("rollups: %d rows", done)
        if told is not None:
            told(done)
