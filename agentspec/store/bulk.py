"""Many rows in one statement's time: what the ORM-free road of SQLAlchemy still costs a row is most
of the writer's work, so rows go to the driver as they are.

SQLite takes them by ``executemany``. PostgreSQL takes those of ``request`` by COPY, and others, of
which a batch has few, as one JSON text (those with bytes in them by ``executemany`` as well).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, LargeBinary, Table
from sqlalchemy.exc import DBAPIError

Values = Mapping[str, Any]


def insert(connection: Connection, table: Table, rows: Sequence[Values], conflict: str) -> None:
    """Insert rows (all columns of the first one's names); ``conflict``: the ON CONFLICT clause.

    Raises what SQLAlchemy raises, and for what no database would take ``ValueError`` or
    ``OverflowError``.
    """
    if not rows:
        return
    names = list(rows[0])
    columns = ", ".join(names)
    into = f"INSERT INTO {table.name} ({columns})"
    on_server = connection.dialect.name == "postgresql"
    if on_server and not any(isinstance(table.c[name].type, LargeBinary) for name in names):
        packed = msgspec.json.encode(rows).decode()
        given = _given(connection, table, names)
        connection.exec_driver_sql(f"{into} SELECT {columns} FROM {given} {conflict}", (packed,))
        return
    marks = ", ".join(["%s" if on_server else "?"] * len(names))
    values = [tuple(row.values()) for row in rows]
    connection.exec_driver_sql(f"{into} VALUES ({marks}) {conflict}", values)


def lookup(
    connection: Connection, table: Table, keys: Sequence[Values], columns: Sequence[str]
) -> Sequence[Sequence[Any]]:
    """The ``columns`` of the rows whose columns have the values of one of ``keys`` (all of the same
    names), each found by an index that begins with these."""
    if not keys:
        return []
    names = list(keys[0])
    given = _given(connection, table, names)
    chosen = ", ".join(f"{table.name}.{column}" for column in columns)
    where = " AND ".join(f"{table.name}.{name} = given.{name}" for name in names)
    # SQLite leaves the order of a CROSS JOIN as it is: keys first.
    query = f"SELECT {chosen} FROM {given} CROSS JOIN {table.name} WHERE {where}"
    packed = msgspec.json.encode(keys).decode()
    return connection.exec_driver_sql(query, (packed,)).all()


def adding(table: Table, names: Sequence[str], **others: str) -> str:
    """The conflict clause that adds the named columns to those of the row that is there.

    others: further columns, and the expressions that they become.
    """
    values = [f"{name} = {table.name}.{name} + excluded.{name}" for name in names]
    values += [f"{name} = {expression}" for name, expression in others.items()]
    keys = ", ".join(column.name for column in table.primary_key)
    return f"ON CONFLICT ({keys}) DO UPDATE SET {', '.join(values)}"


def _given(connection: Connection, table: Table, names: Sequence[str]) -> str:
    """The table ``given``: the statement's one parameter, a JSON list of objects."""
    if connection.dialect.name == "postgresql":
        types = [table.c[name].type.compile(dialect=connection.dialect) for name in names]
        columns = ", ".join(f"{name} {type}" for name, type in zip(names, types, strict=True))
        return f"json_to_recordset(CAST(%s AS json)) AS given({columns})"
    columns = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in names)
    return f"(SELECT {columns} FROM json_each(?)) AS given"


def copy(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """COPY rows into a table of PostgreSQL. Raises what SQLAlchemy raises, also for a row that is
    there already."""
    columns = ", ".join(rows[0])
    raw = connection.connection.dbapi_connection
    assert raw is not None
    statement = f"COPY {table.name} ({columns}) FROM STDIN"
    dialect = connection.dialect
    try:
        with raw.cursor() as cursor, cursor.copy(statement) as copying:  # type: ignore[attr-defined]
            for row in rows:
                copying.write_row(tuple(row.values()))
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(
            statement, None, error, dialect.loaded_dbapi.Error, dialect=dialect
        ) from error
