"""When: sums per time bucket."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import Connection, case, func, select

from .schema import request
from .window import Window, total


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sums over the requests taken in from ``start_ms`` to the next bucket's start."""

    start_ms: int
    requests: int = 0
    failed: int = 0
    in_tok: int = 0
    cached_tok: int = 0
    out_tok: int = 0
    spec_steps: int = 0
    spec_accepted: int = 0
    cost_fresh_nusd: int = 0
    cost_cached_nusd: int = 0
    cost_out_nusd: int = 0

    @property
    def fresh_tok(self) -> int:
        return self.in_tok - self.cached_tok

    @property
    def accepted_length(self) -> float | None:
        """Tokens per verification step, the bonus token included; None without a step."""
        return 1 + self.spec_accepted / self.spec_steps if self.spec_steps else None

    @property
    def cost_nusd(self) -> int:
        return self.cost_fresh_nusd + self.cost_cached_nusd + self.cost_out_nusd


_PLAIN = [field.name for field in fields(Bucket)][3:]


def series(connection: Connection, window: Window, bucket_ms: int) -> list[Bucket]:
    """Every bucket that overlaps the window, in order, empty ones included.

    Buckets start at whole multiples of ``bucket_ms`` since 1970; the first and the last may be cut
    by the window.
    """
    start = request.c.ts_ms - request.c.ts_ms % bucket_ms
    query = (
        select(
            start.label("start_ms"),
            func.count().label("requests"),
            total(case((request.c.status.in_(("error", "lost")), 1), else_=0)).label("failed"),
            *(total(request.c[name]).label(name) for name in _PLAIN),
        )
        .where(window.rows())
        .group_by(start)
    )
    found = {row.start_ms: Bucket(**row._asdict()) for row in connection.execute(query)}
    first = window.since_ms - window.since_ms % bucket_ms
    return [found.get(at, Bucket(at)) for at in range(first, window.until_ms, bucket_ms)]
