"""How far drafts carry: the histogram of accepted lengths, summed over requests.

One histogram answers every question about acceptance (``hist[j]``: verification steps that accepted
exactly j drafted tokens): for a chain of drafts, position i was accepted in the steps that accepted
i or more, and a step yields its accepted tokens and one more, the bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, func, select, true
from sqlalchemy.dialects.postgresql import JSONB

from .schema import request
from .window import Window


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``hist[j]`` counts verification steps that accepted exactly j drafted tokens."""

    hist: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        return sum(self.hist)

    @property
    def mean_length(self) -> float | None:
        """Tokens per step, the bonus token included; None without a step."""
        accepted = sum(j * count for j, count in enumerate(self.hist))
        return 1 + accepted / self.steps if self.steps else None

    @property
    def by_position(self) -> list[float]:
        """For draft positions 1, 2, ...: the share of steps in which that position was accepted."""
        steps = self.steps
        return [sum(self.hist[i:]) / steps for i in range(1, len(self.hist))] if steps else []


def acceptance(connection: Connection, window: Window) -> Acceptance:
    """The histogram over all requests of the window. Steps pool: long outputs weigh more."""
    elements, position, steps = _elements(connection.dialect.name)
    query = (
        select(position, cast(func.sum(steps), BigInteger))
        .select_from(request.join(elements, true()))
        .where(window.rows(), request.c.spec_steps > 0)
        .group_by(position)
    )
    counts = {int(j): int(count) for j, count in connection.execute(query)}
    return Acceptance(tuple(counts.get(j, 0) for j in range(max(counts, default=-1) + 1)))


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
