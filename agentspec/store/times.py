"""Percentiles of every kind of time, of each value of a dimension, from the rollups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection

from .grouping import grouped, readable
from .histogram import Counts, add, percentiles
from .latency import PERCENTILES
from .slices import Slice, counts
from .window import Value

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
    told = {name: _counted(connection, slice, {by: name}) for name in names[:MOST]}
    if len(names) > MOST:
        whole = _counted(connection, slice, {})
    else:
        whole = {kind: _sum(one[kind] for one in told.values()) for kind in KINDS}
    return {name: _read(one) for name, one in {ALL: whole, **told}.items()}


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
