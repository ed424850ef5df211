"""From records to rows of the table ``request``: one transaction a batch."""

from __future__ import annotations

import logging
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Connection, Engine, Integer, Text, delete, select
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from . import bulk
from .cells import Additions
from .database import insert_new, upsert
from .dates import nearest
from .notes import write_notes
from .record import RequestRecord
from .replay import Batch
from .rollup import LARGEST
from .schema import journal_offset, request

log = logging.getLogger(__name__)

MAX_TEXT = 500
"""Characters kept of a text. PostgreSQL takes no index entry beyond 2,704 bytes, and clients choose
their session's name."""

_JSON = ("spec_sources", "spec_hist", "decision")
_TEXT = [c.name for c in request.columns if isinstance(c.type, Text) and c.name not in _JSON]
_BIG = [c.name for c in request.columns if isinstance(c.type, BigInteger)]
_SMALL = [c.name for c in request.columns if isinstance(c.type, Integer) and c.name not in _BIG]
_WHOLE = [
    (names, itemgetter(*names), limit) for names, limit in ((_BIG, LARGEST), (_SMALL, 2**31 - 1))
]
"""Columns of whole numbers, how to have them out of a row, the largest number that fits."""
_texts = itemgetter(*_TEXT)


def to_row(record: RequestRecord) -> dict[str, Any]:
    """The record as column values, made to fit: a row must not fail for what a client sent.

    A number too large for its column, or for a sum of many, becomes the largest there is, a text is
    cut to ``MAX_TEXT``, a time beyond all calendars is brought to their end (``dates``), and NUL
    characters, which PostgreSQL has no place for, become U+FFFD.
    """
    row = msgspec.structs.asdict(record)
    row["ts_ms"] = nearest(record.ts_ms)
    for name in _JSON:
        value = row[name]
        raw = value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
        row[name] = bytes(raw).decode()
    texts = [text for text in _texts(row) if text]
    if "\0" in "".join(texts) or max(map(len, texts), default=0) > MAX_TEXT:
        for name in _TEXT:
            if row[name]:
                row[name] = row[name][:MAX_TEXT].replace("\0", "\ufffd")
    for names, values_of, limit in _WHOLE:
        numbers = [value for value in values_of(row) if value]
        if numbers and (max(numbers) > limit or min(numbers) < -limit):
            row |= {name: max(-limit, min(limit, row[name])) for name in names if row[name]}
    return row


def load_offsets(engine: Engine) -> dict[str, int]:
    """How far each journal was drained, in bytes."""
    with engine.connect() as connection:
        rows = connection.execute(select(journal_offset.c.journal, journal_offset.c.bytes))
        return {row.journal: row.bytes for row in rows}


def existing(engine: Engine, ids: list[str]) -> set[str]:
    """Those of ``ids`` that have their row."""
    with engine.connect() as connection:
        return set(_known(connection, ids))


def _known(connection: Connection, ids: list[str]) -> dict[str, str]:
    """Id -> status of those that have their row."""
    keys = [{"id": id} for id in ids]
    return {id: status for id, status in bulk.lookup(connection, request, keys, ["id", "status"])}  # noqa: C416


def commit(engine: Engine, batch: Batch, bad_file: Path) -> int:
    """Write a batch, and what it adds to the rollups, in one transaction; returns how many rows the
    database refused.

    Idempotent: rows that are there already stay as they are, but for ``lost`` ones whose end is in
    the batch. A refused row goes to ``bad_file`` instead of holding up the others. Raises what
    SQLAlchemy raises when the database cannot be written at all; nothing is written then.
    """
    rows = [to_row(record) for record in [*batch.rows, *batch.lost]]
    try:
        gathered = Gathered(rows)  # before the transaction, which others may be waiting for
        with engine.begin() as connection:
            gathered.write(connection)
            write_notes(connection, batch.notes)
            _save_offsets(engine, connection, batch)
            return 0
    except (SQLAlchemyError, OverflowError, ValueError) as error:
        if not _about_the_data(error):
            raise
        log.warning("a row was refused, looking for it: %s", reason(error))
    with engine.begin() as connection:
        refused = _write_good(connection, rows)
        if refused:
            with open(bad_file, "ab") as file:
                file.writelines(msgspec.json.encode(row) + b"\n" for row in refused)
        write_notes(connection, batch.notes)
        _save_offsets(engine, connection, batch)
    return len(refused)


def write(connection: Connection, rows: list[dict[str, Any]]) -> int:
    """``Gathered(rows).write(connection)``."""
    return Gathered(rows).write(connection)


class Gathered:
    """Rows (see ``to_row``) and what they add to the rollups, for one transaction, once.

    A row that is ``lost`` gives way to the request's end. Of several with one id the first that is
    not lost counts.
    """

    def __init__(self, rows: list[dict[str, Any]]):
        self._rows: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["id"] not in self._rows or _ends(row, self._rows[row["id"]]["status"]):
                self._rows[row["id"]] = row
        self._adding = Additions()
        for row in self._rows.values():
            self._adding.take(row)

    def write(self, connection: Connection) -> int:
        """Insert those rows that are new and add them to the rollups, in the caller's transaction;
        returns how many were new."""
        known = _known(connection, list(self._rows))
        late = [id for id, status in known.items() if _ends(self._rows[id], status)]
        gone = _take_out(connection, late)
        new = {id: row for id, row in self._rows.items() if id not in known or id in gone}
        new = _insert(connection, new)
        for row in [*(self._rows[id] for id in self._rows.keys() - new.keys()), *gone.values()]:
            self._adding.take(row, -1)
        if new:
            self._adding.write(connection, list(gone.values()))
        return len(new)


def _ends(row: dict[str, Any], status: str) -> bool:
    """Whether the row is the end of a request that was ``status`` until now."""
    return status == "lost" and row["status"] != "lost"


def _take_out(connection: Connection, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Delete these lost rows and return those that were there, by id."""
    gone: dict[str, dict[str, Any]] = {}
    for at in range(0, len(ids), 500):
        some = request.c.id.in_(ids[at : at + 500])
        for row in connection.execute(select(request).where(some).with_for_update()).mappings():
            gone[row["id"]] = dict(row)
        connection.execute(delete(request).where(some))
    return gone


def _insert(connection: Connection, rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Insert rows, and return those that were inserted, by id: on PostgreSQL another writer may
    just have been quicker."""
    if not rows:
        return {}
    if connection.dialect.name == "sqlite":
        bulk.insert(connection, request, list(rows.values()), "ON CONFLICT DO NOTHING")
        return rows
    try:
        with connection.begin_nested():
            bulk.copy(connection, request, list(rows.values()))
        return rows
    except IntegrityError:
        statement = insert_new(connection, request).returning(request.c.id)
        return {id: row for id, row in rows.items() if connection.scalar(statement, row)}


def _write_good(connection: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write all rows but those that are refused, which are returned: found by halving, since each
    row on its own would take a hundred times as long, and hold others up."""
    try:
        with connection.begin_nested():
            write(connection, rows)
        return []
    except (SQLAlchemyError, OverflowError, ValueError) as error:
        if not _about_the_data(error):
            raise
    if len(rows) <= 1:
        return rows
    half = len(rows) // 2
    return [row for part in (rows[:half], rows[half:]) for row in _write_good(connection, part)]


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
