"""The stretch of time a question is about, and SQL that the questions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func

from .schema import request

Value = str | tuple[str, ...]
"""What a column must be: this, or one of these."""

Where = Mapping[str, Value]
"""Column -> value, "" for one that is not known."""


@dataclass(frozen=True, slots=True)
class Window:
    """From ``since_ms`` (inclusive) to ``until_ms`` (exclusive), milliseconds UTC."""

    since_ms: int
    until_ms: int

    @property
    def length_ms(self) -> int:
        return self.until_ms - self.since_ms

    def rows(self) -> ColumnElement[bool]:
        """The condition that a row of ``request`` was taken in within the window."""
        return and_(request.c.ts_ms >= self.since_ms, request.c.ts_ms < self.until_ms)


def holds(column: ColumnElement[str], value: Value) -> ColumnElement[bool]:
    """The condition that the column has that value, or one of those."""
    return column.in_(value) if isinstance(value, tuple) else column == value


def equal(where: Where) -> list[ColumnElement[bool]]:
    """The conditions that columns of ``request`` have these values."""
    c = request.c
    return [
        holds(func.coalesce(c[name], "") if c[name].nullable else c[name], value)
        for name, value in where.items()
    ]


def total(expression: ColumnElement) -> ColumnElement[int]:
    """A sum, 0 over no rows. PostgreSQL's sum of bigint is numeric, hence the cast."""
    return cast(func.coalesce(func.sum(expression), 0), BigInteger)
