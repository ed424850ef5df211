"""Kept payloads as a file of one JSON object a line: what people asked, for ``agentspec draft``.

Redacted as they lie in the table; nothing here reads a journal. The file is its owner's alone.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, select

from .schema import request, request_payload

CHUNK_ROWS = 200
"""A conversation may be megabytes; so many are held at once."""


def export_payloads(
    connection: Connection,
    path: Path,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    surface: str | None = None,
    status: str | None = None,
) -> int:
    """Write ``{request_id, ts_ms, surface, model, status, kind, redacted, text}`` a line, oldest
    first, from ``since_ms`` to before ``until_ms``, and return how many.

    surface, status: only payloads of such requests. Those whose request's row is pruned have
    neither. The file is written under another name and then renamed over a former one. Raises
    ``OSError``.
    """
    draft = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    rows = 0
    with open(fd, "wb") as file:
        query = _query(since_ms, until_ms, surface, status)
        for row in connection.execute(query.execution_options(yield_per=CHUNK_ROWS)).mappings():
            file.write(msgspec.json.encode(_line(dict(row))) + b"\n")
            rows += 1
    os.replace(draft, path)
    return rows


def _line(row: dict[str, Any]) -> dict[str, Any]:
    body = row.pop("body")
    return row | {"text": zlib.decompress(body).decode()}


def _query(since_ms: int | None, until_ms: int | None, surface: str | None, status: str | None):
    p, r = request_payload.c, request.c
    whose = and_(r.id == p.request_id, r.ts_ms == p.ts_ms)
    wanted = ((p.ts_ms, since_ms, True), (p.ts_ms, until_ms, False))
    limits = [(at >= ms if first else at < ms) for at, ms, first in wanted if ms is not None]
    limits += [c == v for c, v in ((r.surface, surface), (r.status, status)) if v is not None]
    return (
        select(p.request_id, p.ts_ms, r.surface, r.model, r.status, p.kind, p.redacted, p.body)
        .select_from(request_payload.join(request, whose, isouter=True))
        .where(*limits)
        .order_by(p.ts_ms, p.request_id, p.kind)
    )
