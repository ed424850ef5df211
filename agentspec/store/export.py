"""The ledger's rows as Parquet files, a day each: ``DIR/TABLE/date=2026-07-01/part.parquet``.

The folder's form is Hive's, which DuckDB, Spark, ClickHouse and pandas read as one table. pyarrow
is imported when it is used (``pip install 'agentspec[export]'``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Double, Integer, Table, func, select

from .errors import StoreError
from .rollup_schema import DAY_MS
from .schema import request, tool_call

TABLES = {"request": request, "tool_call": tool_call}
CHUNK_ROWS = 20_000


class ExportUnavailable(StoreError):
    """pyarrow is not installed."""

    code = "export_unavailable"


class ExportRefused(StoreError):
    """What was asked for is no stretch of time."""

    type = "invalid_request_error"
    code = "invalid_export"


@dataclass(frozen=True, slots=True)
class Exported:
    """One file and its rows."""

    path: Path
    rows: int


def export(
    connection: Connection,
    folder: Path,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    told: Callable[[Exported], Any] | None = None,
) -> list[Exported]:
    """Write every day (UTC) from ``since_ms`` to before ``until_ms`` that has rows.

    A file is written under another name and then renamed over a former one, so that no reader sees
    half a day. Days are whole: the limits are widened to days' starts and ends. Raises
    ``ExportUnavailable``.
    """
    done = []
    for name, table in TABLES.items():
        for day_ms in _days(connection, table, since_ms, until_ms):
            date = f"{datetime.fromtimestamp(day_ms // 1000, UTC):%Y-%m-%d}"
            path = folder / name / f"date={date}" / "part.parquet"
            one = Exported(path, _write_day(connection, table, day_ms, path))
            done.append(one)
            if told is not None:
                told(one)
    return done


def _days(
    connection: Connection, table: Table, since_ms: int | None, until_ms: int | None
) -> Iterator[int]:
    """The starts of the days that have rows, found by the index on time."""
    at_ms = -(2**62) if since_ms is None else since_ms - since_ms % DAY_MS
    while True:
        query = select(func.min(table.c.ts_ms)).where(table.c.ts_ms >= at_ms)
        first = connection.scalar(query)
        if first is None or (until_ms is not None and first >= until_ms):
            return
        day_ms = first - first % DAY_MS
        yield day_ms
        at_ms = day_ms + DAY_MS


def _write_day(connection: Connection, table: Table, day_ms: int, path: Path) -> int:
    arrow, parquet = _pyarrow()
    schema = arrow.schema([arrow.field(c.name, _type(arrow, c.type)) for c in table.columns])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    query = (
        select(table)
        .where(table.c.ts_ms >= day_ms, table.c.ts_ms < day_ms + DAY_MS)
        .order_by(table.c.ts_ms, *table.primary_key)
        .execution_options(yield_per=CHUNK_ROWS)
    )
    rows = 0
    with parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        for chunk in connection.execute(query).mappings().partitions():
            writer.write_table(arrow.Table.from_pylist([dict(row) for row in chunk], schema))
            rows += len(chunk)
    os.replace(draft, path)
    return rows


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ExportUnavailable(
            "Parquet needs pyarrow: install 'agentspec[export]'", param="export"
        ) from None
    return pyarrow, parquet


def _type(arrow: Any, type_: object) -> Any:
    if isinstance(type_, Boolean):
        return arrow.bool_()
    if isinstance(type_, BigInteger):
        return arrow.int64()
    if isinstance(type_, Integer):
        return arrow.int32()
    return arrow.float64() if isinstance(type_, Double) else arrow.string()
