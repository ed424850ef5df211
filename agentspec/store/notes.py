"""What stands beside a request's row: its tool calls, and, by opt-in, what was asked and answered.

Made to fit their columns like the rows themselves (``rows.to_row``), and as idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from .bulk import insert
from .dates import nearest
from .payload import packed
from .record import CallsRecord, Note
from .schema import request_payload, tool_call

MAX_CALLS = 1000
"""Calls of one answer that get a row; no agent can use so many."""
_MAX_NAME = 500
_NEW = "ON CONFLICT DO NOTHING"


def write_notes(connection: Connection, notes: Sequence[Note]) -> None:
    """Insert those that are not there yet, in the caller's transaction."""
    calls = [note for note in notes if isinstance(note, CallsRecord)]
    insert(connection, tool_call, list(_calls(calls)), _NEW)
    bodies = [packed(note) for note in notes if not isinstance(note, CallsRecord)]
    insert(connection, request_payload, bodies, _NEW)


def _calls(notes: Iterable[CallsRecord]) -> Iterable[dict[str, Any]]:
    for note in notes:
        for idx, call in enumerate(note.calls[:MAX_CALLS]):
            yield {
                "request_id": note.id,
                "idx": idx,
                "ts_ms": nearest(note.ts_ms),
                "name": call.name[:_MAX_NAME].replace("\0", "\ufffd"),
                "valid": call.valid,
                "repaired": call.repaired,
            }
