"""Which: the last requests, and everything about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, RowMapping, and_, or_, select

from .newest import spans
from .record import RequestRecord
from .schema import request
from .window import Where, Window, equal


@dataclass(frozen=True, slots=True)
class Filters:
    """Which requests to list; an empty field filters nothing."""

    session_id: str = ""
    model: str = ""
    backend: str = ""
    status: str = ""


def recent(
    connection: Connection,
    window: Window,
    limit: int,
    *,
    filters: Filters = Filters(),
    where: Where | None = None,
    before: tuple[int, str] | None = None,
) -> list[RequestRecord]:
    """The newest requests of the window, newest first.

    ``where``: column -> value, "" for one that is not known.
    ``before``: the ``(ts_ms, id)`` of the last one of the page before.
    """
    c = request.c
    wanted = dict(where or {})
    for name in ("session_id", "model", "backend", "status"):
        if value := getattr(filters, name):
            wanted[name] = value
    query = select(request).where(*equal(wanted))
    if before is not None:
        ts_ms, name = before
        window = Window(window.since_ms, min(window.until_ms, ts_ms + 1))
        query = query.where(or_(c.ts_ms < ts_ms, and_(c.ts_ms == ts_ms, c.id < name)))
    query = query.order_by(c.ts_ms.desc(), c.id.desc())
    found: list[RequestRecord] = []
    for part in spans(connection, window, wanted, limit):
        rows = connection.execute(query.where(part.rows()).limit(limit - len(found)))
        found += [_record(row) for row in rows.mappings()]
        if len(found) == limit:
            break
    return found


def one(connection: Connection, id: str) -> RequestRecord | None:
    """The request of that id."""
    row = connection.execute(select(request).where(request.c.id == id)).mappings().first()
    return _record(row) if row is not None else None


def some(connection: Connection, ids: Sequence[str]) -> list[RequestRecord]:
    """The requests of these ids that there are, in their order."""
    found: dict[str, RequestRecord] = {}
    for start in range(0, len(ids), 500):
        query = select(request).where(request.c.id.in_(ids[start : start + 500]))
        found |= {row["id"]: _record(row) for row in connection.execute(query).mappings()}
    return [found[id] for id in ids if id in found]


def _record(row: RowMapping) -> RequestRecord:
    fields = dict(row)
    for name in ("spec_sources", "spec_hist", "decision"):
        fields[name] = msgspec.json.decode(fields[name])
    return RequestRecord(**fields)
