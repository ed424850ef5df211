"""Every migration down and up again with rows in place, each row compared at every step."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from typing import Any

import sqlalchemy as sa

from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.rollup_schema import hist, rollup, rollup_session
from agentspec.store.rows import write
from agentspec.store.schema import REVISION, request

from .synthetic import Load

FIRST = 1
CHUNK_ROWS = 10_000


def walk(url: str, rows: int, until_ms: int) -> list[dict[str, Any]]:
    """Fill the ledger at ``url``, go down to the first revision and up to the newest.

    Results: what, s (seconds), n (rows), lost: rows that are missing or hold other values in the
    columns that the revision has; after the last step also rollup cells that differ.
    """
    _fill(url, Load(rows, until_ms, span_ms=rows * 1000))
    before, cells = _rows(url), _cells(url)
    newest = int(REVISION)
    found = []
    for number in [*range(newest - 1, FIRST - 1, -1), *range(FIRST + 1, newest + 1)]:
        down = len(found) < newest - FIRST
        step = migrate.downgrade if down else migrate.upgrade
        began_s = time.perf_counter()
        step(url, f"{number:04}")
        took_s = time.perf_counter() - began_s
        lost = _differences(before, _rows(url))
        what = f"{'down' if down else 'up'} to {number:04}"
        found.append({"what": what, "s": round(took_s, 3), "n": len(before), "lost": lost})
    found[-1]["lost"] += len(cells ^ _cells(url))
    return found


def _fill(url: str, load: Load) -> None:
    engine = connect(url)
    rows = list(load.rows())
    for at in range(0, len(rows), CHUNK_ROWS):
        with engine.begin() as connection:
            write(connection, rows[at : at + CHUNK_ROWS])
    engine.dispose()


def _rows(url: str) -> list[dict[str, Any]]:
    """All requests by id, with those of the newest revision's columns that are there."""
    engine = connect(url)
    there = {column["name"] for column in sa.inspect(engine).get_columns("request")}
    columns = [column for column in request.columns if column.name in there]
    with engine.connect() as connection:
        query = sa.select(*columns).order_by(request.c.id)
        rows = [dict(row) for row in connection.execute(query).mappings()]
    engine.dispose()
    return rows


def _differences(before: Seq[dict[str, Any]], now: Seq[dict[str, Any]]) -> int:
    wrong = sum(
        any(one[name] != value for name, value in other.items())
        for one, other in zip(before, now, strict=False)
    )
    return wrong + abs(len(before) - len(now))


def _cells(url: str) -> set[tuple[Any, ...]]:
    """Every cell of the rollups; of sessions all but their client and model."""
    engine = connect(url)
    with engine.connect() as connection:
        cells = {
            (table.name, *row)
            for table in (*rollup.values(), *hist.values())
            for row in connection.execute(sa.select(table))
        }
        columns = [c for c in rollup_session.c if c.name not in ("client", "model")]
        cells |= {("session", *row) for row in connection.execute(sa.select(*columns))}
    engine.dispose()
    return cells
