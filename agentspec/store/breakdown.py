"""Where: sums per model and backend."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, case, func, select

from .schema import request
from .window import Window, total

_SUMMED = ("in_tok", "cached_tok", "out_tok", "spec_steps", "spec_accepted", "cost_nusd")


@dataclass(frozen=True, slots=True)
class Place:
    """Sums over the requests of one model on one backend."""

    model: str
    backend: str
    requests: int
    failed: int
    in_tok: int
    cached_tok: int
    out_tok: int
    spec_steps: int
    spec_accepted: int
    cost_nusd: int

    @property
    def accepted_length(self) -> float | None:
        return 1 + self.spec_accepted / self.spec_steps if self.spec_steps else None


def breakdown(connection: Connection, window: Window, limit: int = 20) -> list[Place]:
    """The ``limit`` busiest pairs of model and backend, most requests first."""
    count = func.count()
    c = request.c
    query = (
        select(
            c.model,
            c.backend,
            count.label("requests"),
            total(case((c.status.in_(("error", "lost")), 1), else_=0)).label("failed"),
            *(total(c[name]).label(name) for name in _SUMMED),
        )
        .where(window.rows())
        .group_by(c.model, c.backend)
        .order_by(count.desc(), c.model, c.backend)
        .limit(limit)
    )
    return [Place(**row._asdict()) for row in connection.execute(query)]
