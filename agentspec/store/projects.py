"""Projects as a filter: the requests of a project are those of the keys that are in it now."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from .keys_schema import api_key, project
from .window import Value

PROJECT = "project"
"""The filter's name; ``request`` has no such column."""


def of_projects(connection: Connection, where: Mapping[str, str]) -> dict[str, Value]:
    """The filters with the project told by its keys; no row fits a project without any."""
    found: dict[str, Value] = {name: value for name, value in where.items() if name != PROJECT}
    if PROJECT in where:
        keys = select(api_key.c.id).where(api_key.c.project == where[PROJECT])
        ids = connection.execute(keys.order_by(api_key.c.id)).scalars()
        found["key_id"] = tuple(id for id in ids if where.get("key_id", id) == id)
    return found


def names(connection: Connection) -> list[str]:
    """Every project, sorted."""
    return list(connection.execute(select(project.c.name).order_by(project.c.name)).scalars())
