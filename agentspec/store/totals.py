"""How much: the sums over a window, and the rates that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import Connection, and_, func, select

from . import slices
from .rollup_schema import SUMS, rollup_session
from .schema import request
from .slices import Slice, sums
from .window import equal, holds

_OF_SESSIONS = ("key_id", "client", "model")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over requests. ``decode_*`` cover finished ones of two tokens or more, TTFT known;
    ``unpriced`` counts those whose cost is unknown, and not in the sums."""

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
    unpriced: int
    tool_calls: int
    tool_calls_valid: int
    decode_tok: int
    decode_us: int

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
        return 1e6 * self.decode_tok / self.decode_us if self.decode_us else None


_SUMMED = [field.name for field in fields(Totals) if field.name in SUMS]


def totals(connection: Connection, slice: Slice) -> Totals:
    """The sums over the slice."""
    values = dict.fromkeys(_SUMMED, 0)
    requests: dict[str, int] = {}
    for (status,), found in sums(connection, slice, _SUMMED, by=("status",)).items():
        requests[status] = found["requests"]
        for name, value in found.items():
            values[name] += value
    return Totals(
        errors=requests.get("error", 0),
        cancelled=requests.get("cancelled", 0),
        lost=requests.get("lost", 0),
        sessions=_sessions(connection, slice),
        **values,
    )


def few(connection: Connection, slice: Slice) -> bool:
    """Whether the rows of the slice's window are so few that they may be read one by one."""
    whole = Slice(slice.window, {}, slice.floors)
    (found,) = sums(connection, whole, ("requests",)).values()
    return found["requests"] <= slices.ROWS_READ


def _sessions(connection: Connection, slice: Slice) -> int:
    """Named sessions (of a key) with a request in the slice: counted where rows are few; of many,
    those of the window that were under way in it (exact for a window that reaches up to now)."""
    window = slice.window
    if few(connection, slice):
        c = request.c
        query = select(c.session_id, c.key_id).where(
            window.rows(), c.session_id != "", *equal(slice.where)
        )
        return connection.scalar(select(func.count()).select_from(query.distinct().subquery())) or 0
    c = rollup_session.c
    known = [holds(c[name], value) for name, value in slice.where.items() if name in _OF_SESSIONS]
    # The index on time would look up each session for its key: reading all of them is quicker.
    last_ms = c.last_ms + 0 if known else c.last_ms
    under_way = and_(last_ms >= window.since_ms, c.first_ms < window.until_ms)
    return connection.scalar(select(func.count()).where(under_way, *known)) or 0
