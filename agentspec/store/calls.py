"""Tool calls by tool: the newest ones of a window."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Integer, cast, func, select

from .schema import tool_call
from .slices import ROWS_READ
from .window import Window


@dataclass(frozen=True, slots=True)
class Tool:
    """valid: calls that were right as sent out; repaired: those among them that were mended."""

    name: str
    calls: int
    valid: int
    repaired: int


def tools(connection: Connection, window: Window, limit: int = ROWS_READ) -> list[Tool]:
    """Over the newest ``limit`` calls of the window, the most called first."""
    c = tool_call.c
    newest = (
        select(c.name, c.valid, c.repaired)
        .where(c.ts_ms >= window.since_ms, c.ts_ms < window.until_ms)
        .order_by(c.ts_ms.desc())
        .limit(limit)
        .subquery()
    )
    query = (
        select(
            newest.c.name,
            func.count(),
            func.sum(cast(newest.c.valid, Integer)),
            func.sum(cast(newest.c.repaired, Integer)),
        )
        .group_by(newest.c.name)
        .order_by(func.count().desc(), newest.c.name)
    )
    return [Tool(name, n, int(v or 0), int(r or 0)) for name, n, v, r in connection.execute(query)]
