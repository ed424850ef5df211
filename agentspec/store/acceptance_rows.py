"""The histograms of accepted lengths of single rows, added up by the database."""

from __future__ import annotations

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, func, select, true
from sqlalchemy.dialects.postgresql import JSONB

from .histogram import Counts
from .schema import request


def accepted_in_rows(connection: Connection, where: ColumnElement[bool]) -> Counts:
    """Accepted drafts -> verification steps, over the requests that ``where`` holds for."""
    elements, position, steps = _elements(connection.dialect.name)
    query = (
        select(position, cast(func.sum(steps), BigInteger))
        .select_from(request.join(elements, true()))
        .where(where, request.c.spec_steps > 0)
        .group_by(position)
    )
    return {int(j): int(count) for j, count in connection.execute(query)}


def _elements(dialect: str) -> tuple:
    """The elements of ``spec_hist`` as a joined table: (table, index from 0, value)."""
    if dialect == "postgresql":
        table = func.jsonb_array_elements_text(cast(request.c.spec_hist, JSONB)).table_valued(
            "value", with_ordinality="ordinality", name="element"
        )
        position: ColumnElement = table.c.ordinality - 1
    else:
        table = func.json_each(request.c.spec_hist).table_valued("key", "value", name="element")
        position = table.c.key
    return table, position, cast(table.c.value, BigInteger)
