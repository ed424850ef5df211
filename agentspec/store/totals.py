"""How much: the sums over a window, and the rates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, Connection, Double, and_, case, cast, func, select

from .schema import request
from .window import Window, total


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over requests. ``decode_*`` cover finished ones of two tokens or more, TTFT known."""

    requests: int
    errors: int
    cancelled: int
    lost: int
    sessions: int
    in_tok: int
    cached_tok: int
    out_tok: int
    forced_tok: int
    spec_steps: int
    spec_drafted: int
    spec_accepted: int
    cost_nusd: int
    cost_fresh_nusd: int
    cost_cached_nusd: int
    cost_out_nusd: int
    tool_calls: int
    tool_calls_valid: int
    decode_tok: int
    decode_ms: float

    @property
    def failed_share(self) -> float | None:
        """Errors and lost requests among all; a client that left is no failure."""
        return (self.errors + self.lost) / self.requests if self.requests else None

    @property
    def cached_share(self) -> float | None:
        return self.cached_tok / self.in_tok if self.in_tok else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted among drafted tokens; grammar-forced ones are in neither."""
        return self.spec_accepted / self.spec_drafted if self.spec_drafted else None

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens after the first over the time after it: what one stream sees, prefill left out."""
        return 1000 * self.decode_tok / self.decode_ms if self.decode_ms else None


_SUMMED = [f.name for f in fields(Totals) if f.name in request.c]


def totals(connection: Connection, window: Window) -> Totals:
    """The sums over the window."""
    c = request.c
    decoding = and_(c.status == "ok", c.ttft_ms.is_not(None), c.out_tok > 1, c.e2e_ms > c.ttft_ms)
    query = select(
        func.count().label("requests"),
        total(case((c.status == "error", 1), else_=0)).label("errors"),
        total(case((c.status == "cancelled", 1), else_=0)).label("cancelled"),
        total(case((c.status == "lost", 1), else_=0)).label("lost"),
        _sessions().label("sessions"),
        *(total(c[name]).label(name) for name in _SUMMED),
        total(case((decoding, c.out_tok - 1), else_=0)).label("decode_tok"),
        cast(func.coalesce(func.sum(case((decoding, c.e2e_ms - c.ttft_ms))), 0), Double).label(
            "decode_ms"
        ),
    ).where(window.rows())
    return Totals(**connection.execute(query).one()._asdict())


def _sessions() -> ColumnElement[int]:
    named = case((request.c.session_id != "", request.c.session_id))
    return func.count(func.distinct(named))
