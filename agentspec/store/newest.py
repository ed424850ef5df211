"""Where the newest requests of some properties lie, by the rollups.

A property that few requests have would otherwise be looked for in every row of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, and_, false, or_, select

from .rebuild import floors
from .rollup_schema import CUBE_LEVELS, CUBES, LEVELS, rollup, rollup_dim
from .window import Window


def spans(
    connection: Connection, window: Window, where: Mapping[str, str], limit: int
) -> list[Window]:
    """Parts of the window, the newest first, that hold its newest ``limit`` requests (all of them,
    where there are fewer) whose columns have the values of ``where``.

    The window itself where no rollup tells these apart.
    """
    found = [window]
    cube = next((cube for cube, names in CUBES.items() if where.keys() <= set(names)), None)
    if cube is None or not where:
        return found
    complete = floors(connection)
    dims = select(rollup_dim.c.id).where(
        rollup_dim.c.cube == cube, *(rollup_dim.c[name] == value for name, value in where.items())
    )
    ids = list(connection.execute(dims).scalars())
    for level in CUBE_LEVELS[cube]:
        if complete.get(level, 0) > window.since_ms:
            break
        found = _within(connection, (cube, level), ids, found, window, limit)
    return found


def _within(
    connection: Connection,
    place: tuple[int, str],
    dims: Sequence[int],
    outer: Sequence[Window],
    window: Window,
    limit: int,
) -> list[Window]:
    """The buckets of a cube and level inside ``outer`` that hold the newest requests of these."""
    cube, level = place
    c, size_ms = rollup[level].c, LEVELS[level]
    near = or_(
        false(),
        *(
            and_(c.bucket_ms >= s.since_ms - s.since_ms % size_ms, c.bucket_ms < s.until_ms)
            for s in outer
        ),
    )
    query = (
        select(c.bucket_ms, c.requests)
        .where(c.cube == cube, near, c.dim_id.in_(dims))
        .order_by(c.bucket_ms.desc())
    )
    found: list[Window] = []
    counted = 0
    with connection.execute(query) as cells:
        for bucket_ms, requests in cells:
            since_ms, until_ms = bucket_ms, bucket_ms + size_ms
            span = Window(max(since_ms, window.since_ms), min(until_ms, window.until_ms))
            if not found or found[-1].since_ms != span.since_ms:
                if counted >= limit:
                    break
                found.append(span)
            if span == Window(since_ms, until_ms):  # else some lie outside the window
                counted += requests
    return found
