"""Where a list of requests goes on: ``TS_MS.ID`` of the last one shown, in the URL."""

from __future__ import annotations

from agentspec.store.record import RequestRecord


def cursor(record: RequestRecord) -> str:
    """The cursor behind ``record``."""
    return f"{record.ts_ms}.{record.id}"


def parse_cursor(text: str) -> tuple[int, str] | None:
    """The cursor's parts; None (from the start) for anything that is no cursor."""
    ts_ms, dot, id = text.partition(".")
    if not dot or not ts_ms.isascii() or not ts_ms.isdigit() or len(ts_ms) > 15:
        return None
    return int(ts_ms), id.replace("\0", "\ufffd")  # PostgreSQL holds no NUL
