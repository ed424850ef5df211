"""Which values the filters can have: every model, backend, ... that the rollups know."""

from __future__ import annotations

from sqlalchemy import Connection, select

from . import projects
from .rollup_schema import rollup_dim

MOST = 200
"""Values of one filter that are offered; others can still be asked for."""


def choices(connection: Connection) -> dict[str, list[str]]:
    """Column -> its known values, sorted. Reads a row a combination, never those of requests."""
    names = ("model", "backend", "workload", "client", "key_id")
    found: dict[str, set[str]] = {name: set() for name in names}
    for row in connection.execute(select(*(rollup_dim.c[name] for name in names)).distinct()):
        for name, value in zip(names, row, strict=True):
            if value:
                found[name].add(value)
    known = {name: sorted(values)[:MOST] for name, values in found.items()}
    return known | {projects.PROJECT: projects.names(connection)[:MOST]}
