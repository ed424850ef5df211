"""Many rows in one statement's time: what the ORM-free road of SQLAlchemy still costs a row is most
of the writer's work, so rows go to the driver as they are.

SQLite takes them by ``executemany``; PostgreSQL by COPY into a temporary table, from which one
statement takes them on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError


def insert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], conflict: str
) -> None:
    """Insert rows (all columns of the first one's names); ``conflict``: the ON CONFLICT clause.

    Raises what SQLAlchemy raises.
    """
    if rows:
        _run(connection, table, rows, conflict, "")


def insert_returning(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    conflict: str,
    column: str,
) -> set[Any]:
    """As ``insert``, on PostgreSQL; returns the ``column`` of the rows that were inserted."""
    return {row[0] for row in _run(connection, table, rows, conflict, f" RETURNING {column}")}


def adding(table: Table, names: Sequence[str], **others: str) -> str:
    """The conflict clause that adds the named columns to those of the row that is there.

    others: further columns, and the expressions that they become.
    """
    values = [f"{name} = {table.name}.{name} + excluded.{name}" for name in names]
    values += [f"{name} = {expression}" for name, expression in others.items()]
    keys = ", ".join(column.name for column in table.primary_key)
    return f"ON CONFLICT ({keys}) DO UPDATE SET {', '.join(values)}"


def _run(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    conflict: str,
    returning: str,
) -> Sequence[Any]:
    names = list(rows[0])
    values = [tuple(row.values()) for row in rows]
    columns = ", ".join(names)
    if connection.dialect.name == "postgresql":
        stage = _staged(connection, table, columns, values)
        source = f"SELECT {columns} FROM {stage}"
        result = connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({columns}) {source} {conflict}{returning}"
        )
        found = result.all() if returning else []
        connection.exec_driver_sql(f"TRUNCATE {stage}")
        return found
    marks = ", ".join("?" * len(names))
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({columns}) VALUES ({marks}) {conflict}", values
    )
    return []


def _staged(
    connection: Connection, table: Table, columns: str, values: Sequence[tuple[Any, ...]]
) -> str:
    """Copy rows into the session's temporary table, empty until then; returns its name."""
    stage = f"stage_{table.name}"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {stage} (LIKE {table.name}) ON COMMIT DELETE ROWS"
    )
    raw = connection.connection.dbapi_connection
    assert raw is not None
    statement = f"COPY {stage} ({columns}) FROM STDIN"
    dialect = connection.dialect
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copy:  # type: ignore[attr-defined]
            for row in values:
                copy.write_row(row)
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(
            statement, None, error, dialect.loaded_dbapi.Error, dialect=dialect
        ) from error
    return stage
