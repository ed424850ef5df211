"""The rollups' cells in the database: rows are added in the transaction that writes them.

Sums are added to by the database. Histograms are read, added to and written back, so two
transactions must not do so at once: SQLite has one writer, PostgreSQL takes an advisory lock until
the transaction's end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, select, text, tuple_

from . import bulk
from .histogram import Counts, add, pack, unpack
from .rollup import Cells, Row, contribution, session_sums
from .rollup_schema import (
    CUBES,
    LEVELS,
    SESSION_SUMS,
    SUMS,
    hist,
    rollup,
    rollup_dim,
    rollup_session,
)

_ADVISORY_LOCK = 0x61676E75
_NEAR_BUCKETS = 32
_EXTREMES = ("LEAST", "GREATEST")
_DIMENSIONS = [column.name for column in rollup_dim.columns][2:]


def add_rows(connection: Connection, new: Iterable[Row], gone: Sequence[Row] = ()) -> None:
    """Add rows that were just inserted to every rollup, and take back those that were deleted.

    Inside the caller's transaction, after its last statement on ``request``.
    """
    cells = Cells()
    sessions = _Sessions()
    for sign, rows in ((1, new), (-1, gone)):
        for row in rows:
            sums = contribution(row)
            cells.take(row, sums, sign)
            sessions.take(row, sums, sign)
    if not cells.sums:
        return
    lock(connection)
    _write_dims(connection, cells)
    for level in LEVELS:
        part = cells.at(level)
        _write_sums(connection, rollup[level], part)
        _write_hists(connection, level, part)
    sessions.write(connection)
    if gone:
        _sweep(connection)


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


def _write_sums(connection: Connection, table: Table, cells: Cells) -> None:
    rows = [
        {"cube": cube, "bucket_ms": bucket_ms, "dim_id": dim, **dict(zip(SUMS, sums, strict=True))}
        for (cube, bucket_ms, dim), sums in sorted(cells.sums.items())
    ]
    if rows:
        bulk.insert(connection, table, rows, bulk.adding(table, SUMS))


def _write_hists(connection: Connection, level: str, cells: Cells) -> None:
    rows = []
    for (cube, metric), keys in itertools.groupby(sorted(cells.hists), key=lambda key: key[:2]):
        wanted = [key[2:] for key in keys]
        found = _stored(connection, level, (cube, metric), wanted)
        for bucket_ms, dim in wanted:
            counts = found.get((bucket_ms, dim), {})
            add(counts, cells.hists[cube, metric, bucket_ms, dim])
            place = {"cube": cube, "metric": metric, "bucket_ms": bucket_ms, "dim_id": dim}
            rows.append({**place, "counts": pack(counts)})
    keys = ", ".join(column.name for column in hist[level].primary_key)
    replacing = f"ON CONFLICT ({keys}) DO UPDATE SET counts = excluded.counts"
    bulk.insert(connection, hist[level], rows, replacing)


def _stored(
    connection: Connection, level: str, part: tuple[int, str], keys: list[tuple[int, int]]
) -> dict[tuple[int, int], Counts]:
    """The histograms of these cells of one cube and metric, by bucket and dimension."""
    c = hist[level].c
    query = select(c.bucket_ms, c.dim_id, c.counts).where(c.cube == part[0], c.metric == part[1])
    found: dict[tuple[int, int], Counts] = {}
    for some in _near(keys, LEVELS[level]):
        # SQLite finds the bounds by its index and not the pairs.
        near = c.bucket_ms.between(some[0][0], some[-1][0])
        for bucket_ms, dim, counts in connection.execute(
            query.where(near, tuple_(c.bucket_ms, c.dim_id).in_(some))
        ):
            found[bucket_ms, dim] = unpack(counts)
    return found


def _near(
    keys: list[tuple[int, int]], size: int, most: int = 400
) -> Iterator[list[tuple[int, int]]]:
    """Sorted keys in pieces that span few buckets: a late row comes from far back."""
    piece: list[tuple[int, int]] = []
    for key in keys:
        if piece and (len(piece) == most or key[0] - piece[0][0] > _NEAR_BUCKETS * size):
            yield piece
            piece = []
        piece.append(key)
    if piece:
        yield piece


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
        self._sums[key] = [a + sign * b for a, b in zip(self._sums[key], mine, strict=True)]
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
        ]
        least, most = ("MIN", "MAX") if connection.dialect.name == "sqlite" else _EXTREMES
        clause = bulk.adding(
            rollup_session,
            SESSION_SUMS,
            first_ms=f"{least}(rollup_session.first_ms, excluded.first_ms)",
            last_ms=f"{most}(rollup_session.last_ms, excluded.last_ms)",
        )
        bulk.insert(connection, rollup_session, rows, clause)


def _sweep(connection: Connection) -> None:
    """Cells that nothing is left in; only taking rows back, which is rare, makes any."""
    for level in LEVELS:
        connection.execute(delete(rollup[level]).where(rollup[level].c.requests == 0))
        connection.execute(delete(hist[level]).where(hist[level].c.counts == "{}"))
    connection.execute(delete(rollup_session).where(rollup_session.c.requests == 0))
