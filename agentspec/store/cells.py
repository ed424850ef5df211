"""The rollups' cells in the database: rows are added in the transaction that writes them.

Sums are added to by the database. Histograms are read, added to and written back, so two
transactions must not do so at once: SQLite has one writer, PostgreSQL takes an advisory lock until
the transaction's end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import add as plus
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, text

from . import bulk
from .histogram import Counts, add, pack, unpack
from .rollup import Cell, CellKey, Cells, Row, contribution, session_sums
from .rollup_schema import (
    CUBES,
    LEVELS,
    METRICS,
    SESSION_SUMS,
    SUMS,
    hist,
    rollup,
    rollup_dim,
    rollup_session,
)

_ADVISORY_LOCK = 0x61676E75
_EXTREMES = ("LEAST", "GREATEST")
_HIST_KEY = ("cube", "metric", "bucket_ms", "dim_id")
_DIMENSIONS = [column.name for column in rollup_dim.columns][2:]


class Additions:
    """What rows add to every rollup: gathered in memory, written in one go."""

    def __init__(self) -> None:
        self._cells = Cells()
        self._sessions = _Sessions()

    def take(self, row: Row, sign: int = 1) -> None:
        """Add a row, or (-1) take one back."""
        sums = contribution(row)
        self._cells.take(row, sums, sign)
        self._sessions.take(row, sums, sign)

    def write(self, connection: Connection, gone: Sequence[Row] = ()) -> None:
        """Add it to the tables, inside the caller's transaction, after its last statement on
        ``request``. gone: rows among those taken back that were in the tables."""
        if not self._cells.cells:
            return
        lock(connection)
        _write_dims(connection, self._cells)
        for level in LEVELS:
            part = self._cells.at(level)
            _write_sums(connection, rollup[level], part)
            _write_hists(connection, hist[level], part)
        self._sessions.write(connection)
        if gone:
            _sweep(connection, gone)


def lock(connection: Connection) -> None:
    """Until the transaction's end nobody else changes a cell (on SQLite nobody can anyhow)."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})


def _write_dims(connection: Connection, cells: Cells) -> None:
    rows = []
    for dim, (cube, values) in cells.dims.items():
        named = dict.fromkeys(_DIMENSIONS, "") | dict(zip(CUBES[cube], values, strict=True))
        rows.append({"id": dim, "cube": cube, **named})
    bulk.insert(connection, rollup_dim, rows, "ON CONFLICT DO NOTHING")


def _write_sums(connection: Connection, table: Table, cells: Mapping[CellKey, Cell]) -> None:
    rows = [
        {"cube": cube, "bucket_ms": bucket_ms, "dim_id": dim}
        | dict(zip(SUMS, cell.sums, strict=True))
        for (cube, bucket_ms, dim), cell in sorted(cells.items(), key=_place)
        if any(cell.sums)
    ]
    bulk.insert(connection, table, rows, bulk.adding(table, SUMS))


def _write_hists(connection: Connection, table: Table, cells: Mapping[CellKey, Cell]) -> None:
    added: dict[tuple[Any, ...], Counts] = {
        (cube, metric, bucket_ms, dim): counts
        for (cube, bucket_ms, dim), cell in cells.items()
        for metric, counts in cell.hists.items()
        if any(counts.values())
    }
    places: list[dict[str, Any]] = [dict(zip(_HIST_KEY, key, strict=True)) for key in sorted(added)]
    for *key, packed in bulk.lookup(connection, table, places, [*_HIST_KEY, "counts"]):
        add(added[tuple(key)], unpack(packed))
    rows = [place | {"counts": pack(added[tuple(place.values())])} for place in places]
    keys = ", ".join(_HIST_KEY)
    replacing = f"ON CONFLICT ({keys}) DO UPDATE SET counts = excluded.counts"
    bulk.insert(connection, table, rows, replacing)


def _place(item: tuple[CellKey, Cell]) -> CellKey:
    return item[0]


class _Sessions:
    """What rows add to their sessions; rows without one add nothing."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(SESSION_SUMS))
        self._about: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, row: Row, sums: list[int], sign: int) -> None:
        """``sums``: what the row adds to the cells (``rollup.contribution``)."""
        if not row["session_id"]:
            return
        key = (row["session_id"], row["key_id"])
        mine = session_sums(row, sums)
        if sign < 0:
            mine = [-value for value in mine]
        self._sums[key] = list(map(plus, self._sums[key], mine))
        at_ms = row["ts_ms"]
        about = self._about.setdefault(key, {"first_ms": at_ms, "last_ms": at_ms})
        about["first_ms"] = min(about["first_ms"], at_ms)
        about["last_ms"] = max(about["last_ms"], at_ms)
        about["client"], about["model"] = row["client"], row["model"]

    def write(self, connection: Connection) -> None:
        rows = [
            {"session_id": key[0], "key_id": key[1], **self._about[key]}
            | dict(zip(SESSION_SUMS, self._sums[key], strict=True))
            for key in sorted(self._sums)
            if any(self._sums[key])
        ]
        least, most = ("MIN", "MAX") if connection.dialect.name == "sqlite" else _EXTREMES
        clause = bulk.adding(
            rollup_session,
            SESSION_SUMS,
            first_ms=f"{least}(rollup_session.first_ms, excluded.first_ms)",
            last_ms=f"{most}(rollup_session.last_ms, excluded.last_ms)",
        )
        bulk.insert(connection, rollup_session, rows, clause)


def _sweep(connection: Connection, gone: Sequence[Row]) -> None:
    """Delete the cells of these rows, and their sessions, where nothing is left in them."""
    for level, size_ms in LEVELS.items():
        buckets = {row["ts_ms"] - row["ts_ms"] % size_ms for row in gone}
        for table, empty in (
            (rollup[level], rollup[level].c.requests == 0),
            (hist[level], hist[level].c.counts == "{}"),
        ):
            near = and_(table.c.cube.in_(CUBES), table.c.bucket_ms.in_(buckets))
            if "metric" in table.c:
                near = and_(near, table.c.metric.in_(METRICS))
            connection.execute(delete(table).where(near, empty))
    c = rollup_session.c
    mine = c.session_id.in_({row["session_id"] for row in gone})
    connection.execute(delete(rollup_session).where(mine, c.requests == 0))
