"""Percentiles of every kind of time, of each value of a dimension, from the rollups."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from .grouping import grouped, readable
from .histogram import percentiles
from .latency import PERCENTILES
from .slices import Slice, counts

KINDS = ("ttft", "tpot", "e2e", "queue")
MOST = 12
"""Groups of a table: the busiest."""


def times(
    connection: Connection, slice: Slice, by: str | None = None
) -> dict[str, dict[str, tuple[int, dict[int, float]]]]:
    """Group ("" for all) -> kind of time -> (requests, per cent -> ms), of answered requests.

    A percentile is the middle of its bin (``histogram``), within 0.55 % of a time measured. The
    groups are the ``MOST`` busiest values of the dimension ``by``.
    """
    names = [""]
    if by is not None:
        found = grouped(connection, slice, ("requests",), by=(by,))
        ranked = sorted(found, key=lambda key: (-found[key]["requests"], key))
        names = [key[0] for key in ranked[:MOST]]
    told = {}
    for name in names:
        where = {**slice.where, "status": "ok"} | ({} if by is None else {by: name})
        one = readable(connection, replace(slice, where=where), set(where))
        told[name] = {}
        for kind in KINDS:
            bins = counts(connection, one, kind)
            told[name][kind] = (sum(bins.values()), percentiles(bins, PERCENTILES))
    return told
