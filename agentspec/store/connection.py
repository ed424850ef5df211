"""One connection for one command: of a database that is at this code's revision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from .database import connect, connect_reader
from .migrate import require_current, require_file


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """One snapshot, read only. Raises ``SchemaMismatch``, and what SQLAlchemy raises."""
    require_file(url)
    engine = connect_reader(url)
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    try:
        require_current(engine)
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def writing(url: str) -> Iterator[Connection]:
    """One transaction, committed at the end. Raises as ``reading`` does."""
    require_file(url)  # SQLite would make an empty one
    engine = connect(url)
    try:
        require_current(engine)
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
