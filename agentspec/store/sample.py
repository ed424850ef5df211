"""The newest requests of a slice, some columns of each: for what no rollup keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, select

from .newest import spans
from .schema import request
from .slices import ROWS_READ, Slice
from .window import equal

_JSON = ("spec_sources", "spec_hist", "decision")


@dataclass(frozen=True, slots=True)
class Sample:
    """rows: newest first, values in the order of the columns asked for, JSON decoded. whole: these
    are all that there are."""

    rows: list[tuple[Any, ...]]
    whole: bool

    @property
    def told(self) -> str:
        """Which they are, for a caption."""
        count = len(self.rows)
        return f"all {count:,} such requests" if self.whole else f"the newest {count:,} of them"


def sample(
    connection: Connection,
    slice: Slice,
    columns: Sequence[str],
    *more: ColumnElement[bool],
    limit: int = ROWS_READ,
) -> Sample:
    """Up to ``limit`` rows of the slice. more: further conditions on ``request``."""
    c = request.c
    query = select(*(c[name] for name in columns)).where(*equal(slice.where), *more)
    query = query.order_by(c.ts_ms.desc(), c.id.desc())
    rows: list[tuple[Any, ...]] = []
    for part in spans(connection, slice.window, slice.where, limit + 1):
        left = limit + 1 - len(rows)
        rows += map(tuple, connection.execute(query.where(part.rows()).limit(left)))
        if len(rows) > limit:
            break
    whole = len(rows) <= limit
    places = [at for at, name in enumerate(columns) if name in _JSON]
    decode = msgspec.json.decode
    kept = [list(row) for row in rows[:limit]]
    for row in kept:
        for at in places:
            row[at] = decode(row[at])
    return Sample([tuple(row) for row in kept], whole)


def speculated() -> ColumnElement[bool]:
    """The condition that a request verified drafts."""
    return request.c.spec_steps > 0
