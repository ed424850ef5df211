"""From records to rows of the table ``request``: one transaction a batch."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from .database import insert_new, upsert
from .record import RequestRecord
from .replay import Batch
from .schema import journal_offset, request

log = logging.getLogger(__name__)

MAX_TEXT = 500
"""Characters kept of a text. PostgreSQL takes no index entry beyond 2,704 bytes, and clients choose
their session's name."""

_JSON = ("spec_sources", "spec_hist", "decision")
_SMALL = {c.name for c in request.columns if str(c.type) == "INTEGER"}


def to_row(record: RequestRecord) -> dict[str, Any]:
    """The record as column values, made to fit: a row must not fail for what a client sent.

    A number too large for its column becomes the largest there is, a text is cut to ``MAX_TEXT``,
    NUL characters, which PostgreSQL has no place for, become U+FFFD.
    """
    row: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in _JSON:
            value = msgspec.json.encode(value).decode()
        elif isinstance(value, str):
            value = value[:MAX_TEXT].replace("\0", "\ufffd")
        elif isinstance(value, int) and not isinstance(value, bool):
            limit = 2**31 - 1 if name in _SMALL else 2**63 - 1
            value = max(-limit, min(limit, value))
        row[name] = value
    return row


def load_offsets(engine: Engine) -> dict[str, int]:
    """How far each journal was drained, in bytes."""
    with engine.connect() as connection:
        rows = connection.execute(select(journal_offset.c.journal, journal_offset.c.bytes))
        return {row.journal: row.bytes for row in rows}


def existing(engine: Engine, ids: list[str]) -> set[str]:
    """Those of ``ids`` that have their row."""
    found: set[str] = set()
    with engine.connect() as connection:
        for at in range(0, len(ids), 500):
            query = select(request.c.id).where(request.c.id.in_(ids[at : at + 500]))
            found.update(connection.execute(query).scalars())
    return found


def commit(engine: Engine, batch: Batch, bad_file: Path) -> int:
    """Write a batch in one transaction and return how many rows the database refused.

    Idempotent: rows that are there already stay as they are. A refused row goes to ``bad_file``
    instead of holding up the others. Raises what SQLAlchemy raises when the database cannot be
    written at all; nothing is written then.
    """
    rows = [to_row(record) for record in [*batch.rows, *batch.lost]]
    try:
        with engine.begin() as connection:
            if rows:
                connection.execute(insert_new(engine, request), rows)
            _save_offsets(engine, connection, batch)
            return 0
    except (SQLAlchemyError, OverflowError, ValueError) as error:
        if not _about_the_data(error):
            raise
        log.warning("a row was refused, trying them one by one: %s", reason(error))
    with engine.begin() as connection:
        refused = [row for row in rows if not _insert_one(engine, connection, row)]
        if refused:
            with open(bad_file, "ab") as file:
                file.writelines(msgspec.json.encode(row) + b"\n" for row in refused)
        _save_offsets(engine, connection, batch)
    return len(refused)


def _insert_one(engine: Engine, connection: Connection, row: dict[str, Any]) -> bool:
    try:
        with connection.begin_nested():
            connection.execute(insert_new(engine, request), row)
    except (SQLAlchemyError, OverflowError, ValueError) as error:
        if not _about_the_data(error):
            raise
        return False
    return True


def _about_the_data(error: Exception) -> bool:
    """Whether trying the same row again is in vain (SQLSTATE class 54: a limit was exceeded)."""
    if isinstance(error, SQLAlchemyError):
        sqlstate = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
        return isinstance(error, DataError | IntegrityError) or sqlstate.startswith("54")
    return True


def reason(error: Exception) -> object:
    """What the database said, without the statement around it."""
    return getattr(error, "orig", None) or error


def _save_offsets(engine: Engine, connection: Connection, batch: Batch) -> None:
    """A finished file needs none: should its deletion not happen, reading it again does no harm."""
    now_ms = time.time_ns() // 1_000_000
    offsets = [
        {"journal": name, "bytes": size, "updated_ms": now_ms}
        for name, size in batch.offsets.items()
        if name not in batch.finished
    ]
    if offsets:
        connection.execute(upsert(engine, journal_offset), offsets)
    if batch.finished:
        connection.execute(
            delete(journal_offset).where(journal_offset.c.journal.in_(batch.finished))
        )
