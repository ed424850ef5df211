"""The newest requests of a slice, some columns of each: for what no rollup keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from .newest import spans
from .schema import request
from .slices import ROWS_READ, Slice
from .window import Window, equal

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
    limit: int = ROWS_READ,
    *,
    some: str | None = None,
) -> Sample:
    """Up to ``limit`` rows of the slice. some: a column that is summed, of which they must have
    some."""
    c = request.c
    query = select(*(c[name] for name in columns)).where(*equal(slice.where))
    if some is not None:
        query = query.where(c[some] > 0)
    query = query.order_by(c.ts_ms.desc(), c.id.desc())
    rows: list[tuple[Any, ...]] = []
    for part in _parts(connection, slice, limit + 1, some):
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


def _parts(connection: Connection, slice: Slice, limit: int, some: str | None) -> Iterator[Window]:
    """Parts of the window that hold all such rows, the newest first; asked for as they are read."""
    window = slice.window
    while found := spans(connection, window, slice.where, limit, some):
        yield from found
        if some is None or found[-1].since_ms <= window.since_ms:
            return
        window = Window(window.since_ms, found[-1].since_ms)
