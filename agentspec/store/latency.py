"""How long: percentiles and distributions of the finished requests' times."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from .histogram import middle_ms, percentiles
from .schema import request
from .slices import Slice, counts
from .window import equal

PERCENTILES = (50, 90, 95, 99)
EDGES_MS = tuple(m * 10**e for e in range(6) for m in (1, 2, 5))
"""Limits of the distribution's bins: 1, 2, 5, 10, ... 500,000 ms."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of time over ``count`` requests. ``percentile_ms`` is empty when there are none.

    bins[i]: requests from EDGES_MS[i - 1] to below EDGES_MS[i]; the last: those beyond all edges.
    """

    count: int
    percentile_ms: dict[int, float]
    bins: tuple[int, ...]


def latency(connection: Connection, slice: Slice, metric: str, *, rows: bool) -> Latency:
    """Of ``metric``, "ttft" or "e2e", over the slice's requests that ended well.

    A percentile is the smallest value that at least so many per cent do not exceed (nearest rank).
    ``rows``: read every row, then it is a time that was measured; else the middle of that time's
    bin (``histogram``), and so with the limits of ``bins``.
    """
    if rows:
        return _of_rows(connection, slice, f"{metric}_ms")
    ended_well = Slice(slice.window, {**slice.where, "status": "ok"}, slice.floors)
    found = counts(connection, ended_well, metric)
    bins = [0] * (len(EDGES_MS) + 1)
    for bin, count in found.items():
        bins[bisect_right(EDGES_MS, middle_ms(bin))] += count
    return Latency(sum(bins), percentiles(found, PERCENTILES), tuple(bins))


def _of_rows(connection: Connection, slice: Slice, column: str) -> Latency:
    value = request.c[column]
    rows = select(value.label("value")).where(
        slice.window.rows(), request.c.status == "ok", value.is_not(None), *equal(slice.where)
    )
    bins = _bins(connection, rows)
    count = sum(bins)
    return Latency(count, _percentiles(connection, rows, count), bins)


def _bins(connection: Connection, rows: Select) -> tuple[int, ...]:
    values = rows.subquery()
    number: ColumnElement[int] = case(
        *((values.c.value < edge, index) for index, edge in enumerate(EDGES_MS)),
        else_=len(EDGES_MS),
    )
    query = select(number.label("bin"), func.count()).group_by("bin")
    counts = {index: count for index, count in connection.execute(query)}  # noqa: C416
    return tuple(counts.get(index, 0) for index in range(len(EDGES_MS) + 1))


def _percentiles(connection: Connection, rows: Select, count: int) -> dict[int, float]:
    if not count:
        return {}
    rank_of = {p: math.ceil(p * count / 100) for p in PERCENTILES}
    values = rows.subquery()
    ranked = select(
        values.c.value, func.row_number().over(order_by=values.c.value).label("rank")
    ).subquery()
    query = select(ranked.c.rank, ranked.c.value).where(ranked.c.rank.in_(rank_of.values()))
    value_at = {rank: value for rank, value in connection.execute(query)}  # noqa: C416
    return {p: value_at[rank] for p, rank in rank_of.items()}
