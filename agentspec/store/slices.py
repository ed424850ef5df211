"""Sums and histograms over a slice: a window, and values that some dimensions must have.

Read from the rollups as far as these reach, from the rows at the ends (``parts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    and_,
    case,
    cast,
    func,
    literal,
    select,
)

from .acceptance_rows import accepted_in_rows
from .histogram import Counts, add, bin_of, unpack
from .parts import Part, cube_of, parts
from .rollup import LARGEST
from .rollup_schema import PLACE, hist, rollup, rollup_dim
from .schema import request
from .window import Where, Window, holds, total

ROWS_READ = 10_000
"""Up to so many requests in a window, what only rows can tell exactly is read from the rows."""


@dataclass(frozen=True, slots=True)
class Slice:
    """where: dimension -> value (or values), of one cube (``rollup_schema.CUBES``).

    floors: see ``parts``.
    rows: read nothing but rows, whose every column then is a dimension; for windows of few.
    """

    window: Window
    where: Where = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    rows: bool = False

    def read(self, names: set[str], bucket_ms: int | None = None) -> tuple[int, list[Part]]:
        """The cube that tells these dimensions apart, and the parts of the window."""
        if self.rows:
            return PLACE, [Part(None, self.window)]
        cube = cube_of(names)
        return cube, parts(self.window, cube, self.floors, bucket_ms)


def sums(
    connection: Connection,
    slice: Slice,
    names: Sequence[str],
    *,
    by: Sequence[str] = (),
    bucket_ms: int | None = None,
) -> dict[tuple, dict[str, int]]:
    """The sums ``names`` (of ``rollup_schema.SUMS``) by the values of the dimensions ``by``.

    With ``bucket_ms`` the first of the key is the start of a bucket of that length.
    """
    cube, pieces = slice.read({*by, *slice.where}, bucket_ms)
    found: dict[tuple, dict[str, int]] = {}
    for part in pieces:
        source = _source(connection, part, cube)
        keys = [source.at - source.at % bucket_ms] if bucket_ms else []
        keys += [source.dimensions[name] for name in by]
        query = (
            select(*keys, *(total(source.sums[name]) for name in names))
            .select_from(source.table)
            .where(source.where, *_filters(source, slice))
            .group_by(*keys)
        )
        for row in connection.execute(query):
            values: Sequence[Any] = row[len(keys) :]
            key = tuple(row[: len(keys)])
            into = found.setdefault(key, dict.fromkeys(names, 0))
            for name, value in zip(names, values, strict=True):
                into[name] += value  # type: ignore[operator]
    if not by and not bucket_ms:
        found.setdefault((), dict.fromkeys(names, 0))
    return found


def counts(connection: Connection, slice: Slice, metric: str) -> Counts:
    """The histogram of one of ``rollup_schema.METRICS``."""
    cube, pieces = slice.read(set(slice.where))
    found: Counts = {}
    for part in pieces:
        if part.level is None:
            add(found, _counts_in_rows(connection, part.window, slice, metric))
            continue
        table = hist[part.level]
        query = select(table.c.counts).where(part.cells(cube, metric=metric))
        if slice.where:
            dims = select(rollup_dim.c.id).where(
                rollup_dim.c.cube == cube,
                *(holds(rollup_dim.c[name], value) for name, value in slice.where.items()),
            )
            query = query.where(table.c.dim_id.in_(dims))
        for packed in connection.execute(query).scalars():
            add(found, unpack(packed))
    return {bin: count for bin, count in found.items() if count}


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a part is read: a table, the time, the dimensions and the sums in it."""

    table: FromClause
    where: ColumnElement[bool]
    at: ColumnElement[int]
    dimensions: Mapping[str, ColumnElement[str]]
    sums: Mapping[str, ColumnElement[int]]


def _source(connection: Connection, part: Part, cube: int) -> _Source:
    if part.level is None:
        return _rows(connection, part.window)
    table = rollup[part.level]
    joined = table.join(rollup_dim, rollup_dim.c.id == table.c.dim_id)
    dimensions = {column.name: column for column in rollup_dim.c}
    cells = {column.name: column for column in table.c}
    return _Source(joined, part.cells(cube), table.c.bucket_ms, dimensions, cells)


def _rows(connection: Connection, window: Window) -> _Source:
    """The rows themselves, adding up to what ``rollup.contribution`` would."""
    c = request.c
    timed = and_(c.ttft_ms.is_not(None), c.tpot_ms.is_not(None), c.e2e_ms > c.ttft_ms)
    ends = and_(c.status == "ok", c.out_tok > 1, timed)
    own = {
        "requests": literal(1),
        "unpriced": case((c.cost_nusd.is_(None), 1), else_=0),
        "decode_tok": case((ends, c.out_tok - 1), else_=0),
        "decode_us": case((ends, _whole_us(connection, c.e2e_ms - c.ttft_ms)), else_=0),
        "e2e_us": func.coalesce(_whole_us(connection, c.e2e_ms), 0),
    }
    own = {name: bounded(value) for name, value in own.items()}
    plain = {
        column.name: bounded(func.coalesce(column, 0))
        for column in c
        if isinstance(column.type, BigInteger) or column.name.startswith("tool_calls")
    }
    dimensions: dict[str, ColumnElement[str]] = {
        column.name: func.coalesce(column, "") if column.nullable else column for column in c
    }
    return _Source(request, window.rows(), c.ts_ms, dimensions, plain | own)


def _whole_us(connection: Connection, ms: ColumnElement[float]) -> ColumnElement[int]:
    """As ``rollup.whole_us``: SQLite's cast cuts off, PostgreSQL's rounds."""
    us = ms * 1000
    if connection.dialect.name == "postgresql":
        us = func.trunc(us)
    largest = literal(float(LARGEST))
    return case((func.abs(us) < largest, cast(us, BigInteger)), (us.is_not(None), 0))


def bounded(value: ColumnElement[int]) -> ColumnElement[int]:
    """What a row adds of it to a sum: no more than fits (``rollup.LARGEST``)."""
    most, least = literal(LARGEST, BigInteger), literal(-LARGEST, BigInteger)
    return case((value > most, most), (value < least, least), else_=cast(value, BigInteger))


def _filters(source: _Source, slice: Slice) -> list[ColumnElement[bool]]:
    return [holds(source.dimensions[name], value) for name, value in slice.where.items()]


def _counts_in_rows(connection: Connection, window: Window, slice: Slice, metric: str) -> Counts:
    filters = _filters(_rows(connection, window), slice)
    if metric == "accepted":
        return accepted_in_rows(connection, and_(window.rows(), *filters))
    column = request.c[f"{metric}_ms"]
    query = select(column).where(window.rows(), column.is_not(None), *filters)
    found: Counts = {}
    for value in connection.execute(query).scalars():
        bin = bin_of(value)
        found[bin] = found.get(bin, 0) + 1
    return found
