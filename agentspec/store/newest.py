"""Where the newest requests of some properties lie, by the rollups.

A property that few requests have would otherwise be looked for in every row of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from .rebuild import floors
from .rollup_schema import CUBE_LEVELS, CUBES, HOUR_MS, LEVELS, rollup, rollup_dim
from .slices import Slice, sums
from .window import Where, Window, holds

FEW = 2
"""So many hours of rows are read rather than cut finer."""
CHEAP_ROWS = 150
"""About so many rows between two parts are read with them: each part is a question of its own, and
a ledger of a row a minute would have thousands."""


def spans(
    connection: Connection, window: Window, where: Where, limit: int, some: str | None = None
) -> list[Window]:
    """Parts of the window, the newest first, that hold its newest ``limit`` requests (all of them,
    where there are fewer) whose columns have the values of ``where``.

    some: a column that is summed (``rollup_schema.PLAIN``): only cells that have some of it are
    looked for. Not each of their requests need have any: fewer than ``limit`` may be found, with
    more of them before the last part. The window itself where no rollup tells these apart.
    """
    found = [window]
    cube = next((cube for cube, names in CUBES.items() if where.keys() <= set(names)), None)
    if cube is None or not (where or some):
        return found
    complete = floors(connection)
    dims = select(rollup_dim.c.id).where(
        rollup_dim.c.cube == cube,
        *(holds(rollup_dim.c[name], value) for name, value in where.items()),
    )
    ids = list(connection.execute(dims).scalars())
    whole = Slice(window, {}, complete)
    (counted,) = sums(connection, whole, ("requests",)).values()
    gap_ms = CHEAP_ROWS * window.length_ms // max(1, counted["requests"])
    for level in CUBE_LEVELS[cube]:
        near = len(found) <= FEW and all(part.length_ms <= HOUR_MS for part in found)
        if near or complete.get(level, 0) > window.since_ms:
            break
        found = _within(connection, (cube, level), ids, found, window, limit, some)
        found = _joined(found, gap_ms)
    return found


def _joined(parts: Sequence[Window], gap_ms: int) -> list[Window]:
    """Those with no more than that between them as one."""
    found: list[Window] = []
    for part in parts:
        if found and found[-1].since_ms - part.until_ms <= gap_ms:
            part = Window(part.since_ms, found.pop().until_ms)
        found.append(part)
    return found


def _within(
    connection: Connection,
    place: tuple[int, str],
    dims: Sequence[int],
    outer: Sequence[Window],
    window: Window,
    limit: int,
    some: str | None,
) -> list[Window]:
    """The buckets of a cube and level inside ``outer`` that hold the newest requests of these."""
    cube, level = place
    c, size_ms = rollup[level].c, LEVELS[level]
    found: list[Window] = []
    counted = 0
    for part in outer:  # one range a question: SQLite reads a whole index for several
        query = (
            select(c.bucket_ms, func.sum(c.requests))
            .where(
                c.cube == cube,
                c.bucket_ms >= part.since_ms - part.since_ms % size_ms,
                c.bucket_ms < part.until_ms,
                c.dim_id.in_(dims),
                *([c[some] > 0] if some else []),
            )
            .group_by(c.bucket_ms)
            .order_by(c.bucket_ms.desc())
        )
        for bucket_ms, requests in connection.execute(query).all():
            if counted >= limit:
                return found
            until_ms = bucket_ms + size_ms
            found.append(Window(max(bucket_ms, window.since_ms), min(until_ms, window.until_ms)))
            if found[-1] == Window(bucket_ms, until_ms):  # else some lie outside the window
                counted += requests
    return found
