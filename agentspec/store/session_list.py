"""Agents' runs: the sessions of a window, and the requests and calls of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, or_, select

from .record import CallRecord
from .rollup_schema import SESSION_SUMS, rollup_session
from .schema import request, tool_call
from .window import Where, Window, holds

KNOWN = ("key_id", "client", "model")
"""Columns by which sessions can be chosen."""


@dataclass(frozen=True, slots=True)
class Session:
    """Sums over all requests of a session of a key, also those outside of a window."""

    session_id: str
    key_id: str
    first_ms: int
    last_ms: int
    client: str
    model: str
    requests: int
    failed: int
    in_tok: int
    cached_tok: int
    out_tok: int
    spec_steps: int
    spec_drafted: int
    spec_accepted: int
    tool_calls: int
    tool_calls_valid: int
    cost_nusd: int
    e2e_us: int

    @property
    def span_ms(self) -> int:
        """From its first request's start to its last one's."""
        return self.last_ms - self.first_ms


_COLUMNS = ("session_id", "key_id", "first_ms", "last_ms", "client", "model", *SESSION_SUMS)


def sessions(
    connection: Connection,
    window: Window,
    limit: int,
    where: Where | None = None,
    before: tuple[int, str] | None = None,
) -> list[Session]:
    """Sessions whose last request lies in the window, the newest first. where: of ``KNOWN``;
    before: (last_ms, session_id) of the last one of the page before."""
    c = rollup_session.c
    query = select(*(c[name] for name in _COLUMNS)).where(
        c.last_ms >= window.since_ms,
        c.last_ms < window.until_ms,
        *(holds(c[name], value) for name, value in (where or {}).items()),
    )
    if before is not None:
        last_ms, id = before
        query = query.where(or_(c.last_ms < last_ms, and_(c.last_ms == last_ms, c.session_id < id)))
    query = query.order_by(c.last_ms.desc(), c.session_id.desc()).limit(limit)
    return [Session(*row) for row in connection.execute(query)]


def session(connection: Connection, session_id: str, key_id: str | None) -> Session | None:
    """One session; key_id: None for that of whichever key."""
    c = rollup_session.c
    query = select(*(c[name] for name in _COLUMNS)).where(c.session_id == session_id)
    if key_id is not None:
        query = query.where(c.key_id == key_id)
    row = connection.execute(query.order_by(c.last_ms.desc()).limit(1)).first()
    return Session(*row) if row is not None else None


def ids_of(connection: Connection, session: Session, limit: int) -> list[str]:
    """Ids of a session's requests, the newest ``limit`` of them, oldest first."""
    c = request.c
    query = (
        select(c.id)
        .where(c.session_id == session.session_id, c.key_id == session.key_id)
        .order_by(c.ts_ms.desc(), c.id.desc())
        .limit(limit)
    )
    return list(connection.execute(query).scalars())[::-1]


def calls_of(connection: Connection, ids: list[str]) -> dict[str, list[CallRecord]]:
    """Request's id -> the tool calls of its answer, in order."""
    c = tool_call.c
    found: dict[str, list[CallRecord]] = {}
    for start in range(0, len(ids), 500):
        query = (
            select(c.request_id, c.name, c.valid, c.repaired)
            .where(c.request_id.in_(ids[start : start + 500]))
            .order_by(c.request_id, c.idx)
        )
        for id, name, valid, repaired in connection.execute(query):
            found.setdefault(id, []).append(CallRecord(name, bool(valid), bool(repaired)))
    return found


def without_a_cost(connection: Connection, found: Sequence[Session]) -> set[tuple[str, str]]:
    """(session, key) of those whose sum of nothing stands for costs that are not known: a request
    of theirs has none. Looked for where the sum is 0 only: others say what is known."""
    ids = [one.session_id for one in found if not one.cost_nusd]
    c, r = rollup_session.c, request.c
    theirs = r.session_id == c.session_id, r.key_id == c.key_id, r.cost_nusd.is_(None)
    # The first such request answers; a join would have PostgreSQL read all of them.
    first = select(r.id).where(*theirs).limit(1).scalar_subquery()
    query = select(c.session_id, c.key_id).where(c.session_id.in_(ids), first.is_not(None))
    return {(id, key) for id, key in connection.execute(query)} if ids else set()
