"""The stretch of time a question is about, and SQL that the questions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func

from .schema import request


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


def equal(where: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """The conditions that columns of ``request`` have these values, "" for one that isn't known."""
    c = request.c
    return [
        (func.coalesce(c[name], "") if c[name].nullable else c[name]) == value
        for name, value in where.items()
    ]


def total(expression: ColumnElement) -> ColumnElement[int]:
    """A sum, 0 over no rows. PostgreSQL's sum of bigint is numeric, hence the cast."""
    return cast(func.coalesce(func.sum(expression), 0), BigInteger)
