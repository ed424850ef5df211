"""Engines: how the ledger's database is opened, for writing and for reading."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from .errors import StoreError

BUSY_TIMEOUT_MS = 5000
CONNECT_TIMEOUT_S = 5


def connect(url: str) -> Engine:
    """The writing engine. Makes SQLite's folder; opens nothing else before its first use.

    A SQLite transaction starts with BEGIN IMMEDIATE: a read lock upgraded later would fail at once
    instead of waiting. ``postgresql://`` is served by psycopg 3. Raises ``StoreError`` for a URL
    that is neither.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql(parsed)
    if (path := _file(parsed)) is not None:
        _make_folder(path.parent)
    # auto_vacuum only takes hold in a file that has no table yet.
    return _sqlite(
        parsed,
        ("auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=NORMAL"),
        "BEGIN IMMEDIATE",
    )


def connect_reader(url: str) -> Engine:
    """An engine that cannot write. A missing SQLite file is an error on use, not a new file."""
    parsed = _parse(url)
    if parsed.get_backend_name() == "postgresql":
        options = f"-c default_transaction_read_only=on {parsed.query.get('options', '')}".strip()
        return _postgresql(parsed.update_query_dict({"options": options}))
    if (path := _file(parsed)) is not None:
        # Not mode=ro: a reader must be able to recover the write-ahead log of a killed writer.
        name = "file:" + quote(str(path.absolute()))
        parsed = parsed.set(database=name).update_query_dict({"mode": "rw", "uri": "true"})
    return _sqlite(parsed, ("query_only=ON",), "BEGIN")


def missing_file(url: str) -> Path | None:
    """SQLite's file where it is not there; None for a file that is, and for PostgreSQL."""
    path = _file(_parse(url))
    return path if path is not None and not path.exists() else None


def which_file(url: str) -> tuple[int, int] | None:
    """(device, inode) of SQLite's file, which tells it from another of its name; None where it is
    not there, and for PostgreSQL."""
    path = _file(_parse(url))
    try:
        found = path.stat() if path is not None else None
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None


def insert_new(engine: Engine | Connection, table: Table):
    """An INSERT that leaves a row that is already there as it is."""
    dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
    return dialect.insert(table).on_conflict_do_nothing()


def upsert(engine: Engine | Connection, table: Table):
    """An INSERT that overwrites the other columns of a row whose primary key is already there."""
    dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    keys = list(table.primary_key)
    values = {c.name: statement.excluded[c.name] for c in table.columns if c not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=values)


def _file(parsed: URL) -> Path | None:
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(parsed.database or "")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the ledger's folder {folder} cannot be used: {error.strerror}", param="store.url"
        ) from None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"store.url cannot be used: {error}", param="store.url") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(
            f"store.url: '{parsed.get_backend_name()}' is not supported; use sqlite:/// or postgresql://",
            param="store.url",
        )
    return parsed


def _postgresql(url: URL) -> Engine:
    # A server that is stopped takes connections in, and never answers.
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": str(CONNECT_TIMEOUT_S)})
    # What a request holds does not belong into error messages, hence hide_parameters.
    return create_engine(url, pool_pre_ping=True, hide_parameters=True)


def _set(connection: sqlite3.Connection, pragma: str) -> None:
    """Set a pragma, waiting for other connections. ``busy_timeout`` doesn't do that for the change
    of a new file's journal mode, which takes a lock that SQLite gives up at once where another
    connection changes it too."""
    until_s = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute(f"PRAGMA {pragma}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
        time.sleep(0.005)


def _sqlite(url: URL, pragmas: tuple[str, ...], begin: str) -> Engine:
    engine = create_engine(url, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def configure(connection, _record) -> None:
        connection.isolation_level = None  # transactions are ours: see "begin"
        for pragma in (f"busy_timeout={BUSY_TIMEOUT_MS}", *pragmas):
            _set(connection, pragma)

    @event.listens_for(engine, "begin")
    def start(connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
