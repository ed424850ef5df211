"""Percentiles of every kind of time, of each value of a dimension, from the rollups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, func, select

from .grouping import grouped, readable
from .histogram import Counts, add, bin_of, percentiles
from .latency import PERCENTILES
from .schema import request
from .slices import Slice, counts
from .window import Value, Where, Window, equal

KINDS = ("ttft", "tpot", "e2e", "queue")
ALL = "\0all"
"""The name of the group of all requests; no value of a dimension holds a NUL."""
MOST = 12
"""Groups of a table: the busiest."""

Times = dict[str, tuple[int, dict[int, float]]]


def times(connection: Connection, slice: Slice, by: str) -> dict[str, Times]:
    """Group -> kind of time -> (requests, per cent -> ms), of answered requests.

    A percentile is the middle of its bin (``histogram``), within 0.55 % of a time measured. The
    groups are the ``MOST`` busiest values of the dimension ``by``, and ``ALL``: every request.
    """
    found = grouped(connection, slice, ("requests",), by=(by,))
    names = [key[0] for key in sorted(found, key=lambda key: (-found[key]["requests"], key))]
    wanted = {**slice.where, "status": "ok"}
    if readable(connection, replace(slice, where=wanted), {*wanted, by}).rows:
        groups = _in_rows(connection, slice.window, wanted, by)
        told = {name: groups.get(name, _nothing()) for name in names[:MOST]}
        whole = {kind: _sum(one[kind] for one in groups.values()) for kind in KINDS}
        return {name: _read(one) for name, one in {ALL: whole, **told}.items()}
    told = {name: _counted(connection, slice, {by: name}) for name in names[:MOST]}
    if len(names) > MOST:
        whole = _counted(connection, slice, {})
    else:
        whole = {kind: _sum(one[kind] for one in told.values()) for kind in KINDS}
    return {name: _read(one) for name, one in {ALL: whole, **told}.items()}


def _nothing() -> dict[str, Counts]:
    return {kind: {} for kind in KINDS}


def _in_rows(
    connection: Connection, window: Window, where: Where, by: str
) -> dict[str, dict[str, Counts]]:
    """Every group's counts from one look at the rows: one for each group and kind would read all of
    them each time."""
    c = request.c
    name = func.coalesce(c[by], "") if c[by].nullable else c[by]
    query = select(name, *(c[f"{kind}_ms"] for kind in KINDS))
    found: dict[str, dict[str, Counts]] = defaultdict(_nothing)
    for group, *times_ms in connection.execute(query.where(window.rows(), *equal(where))):
        for kind, ms in zip(KINDS, times_ms, strict=True):
            if ms is not None:
                bins, bin = found[group][kind], bin_of(ms)
                bins[bin] = bins.get(bin, 0) + 1
    return found


def _counted(connection: Connection, slice: Slice, where: dict[str, str]) -> dict[str, Counts]:
    wanted: dict[str, Value] = {**slice.where, "status": "ok", **where}
    one = readable(connection, replace(slice, where=wanted), set(wanted))
    return {kind: counts(connection, one, kind) for kind in KINDS}


def _sum(parts: Iterable[Counts]) -> Counts:
    into: Counts = {}
    for part in parts:
        add(into, part)
    return into


def _read(counted: dict[str, Counts]) -> Times:
    return {
        kind: (sum(bins.values()), percentiles(bins, PERCENTILES)) for kind, bins in counted.items()
    }
