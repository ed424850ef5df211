"""The cost report: every dollar of a window once, by where it went.

Self-hosted backends with a pool cost what was provisioned (``provision``), others what was frozen
in their rows. The total is the sum of both; requests of unknown cost are counted beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy import Connection, case, func, select

from agentspec.settings import PoolSettings, Settings

from .cost import per_million
from .counterfactual import Counterfactual, chosen, counterfactual
from .energy import Energy, energy
from .pool import busy_nusd_per_us, nusd_per_h
from .provision import Bill, Parts, bill, shares
from .savings import Savings, savings
from .schema import request
from .usage import Usage, untold, usage
from .window import Window, total


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A counterfactual. break_even: the busy share of the provisioned time above which the pool is
    cheaper, if tokens rise with busy time as they did; above 1: never, at these lengths."""

    bill: Counterfactual
    break_even: Fraction | None


@dataclass(frozen=True, slots=True)
class PoolCost:
    """A self-hosted backend. groups: its requests by the column asked for, and their busy cost.
    untold: requests with output that told no busy time, so that theirs shows as idle."""

    backend: str
    pool: PoolSettings
    nusd_per_h: Fraction
    bill: Bill
    untold: int
    savings: Savings
    elsewhere: list[Elsewhere]
    groups: list[tuple[Usage, Parts]]


@dataclass(frozen=True, slots=True)
class Spend:
    """A backend that is billed by rows. unknown: requests whose cost is not known, which are not
    in the sums; tokens are those of all."""

    backend: str
    requests: int
    unknown: int
    in_tok: int
    cached_tok: int
    out_tok: int
    known_in_tok: int
    known_out_tok: int
    fresh_nusd: int
    cached_nusd: int
    out_nusd: int
    total_nusd: int

    def per_million_out(self) -> Fraction | None:
        """Known cost over the output tokens that it paid for."""
        return per_million(self.total_nusd, self.known_out_tok)

    def per_million_total(self) -> Fraction | None:
        return per_million(self.total_nusd, self.known_in_tok + self.known_out_tok)


@dataclass(frozen=True, slots=True)
class Report:
    """total_nusd: of all pools and all rows of known cost; unknown: requests without."""

    window: Window
    pools: list[PoolCost]
    spends: list[Spend]
    energy: Energy

    @property
    def total_nusd(self) -> int:
        return sum(p.bill.total_nusd for p in self.pools) + sum(s.total_nusd for s in self.spends)

    @property
    def unknown(self) -> int:
        return sum(spend.unknown for spend in self.spends)


def report(
    connection: Connection,
    settings: Settings,
    window: Window,
    *,
    at: Sequence[str] = (),
    by: str | None = None,
) -> Report:
    """The report on a window. at: commercial models (``MODEL`` or ``MODEL@VERSION``) to compare
    with; by: the column by which pools' requests are divided. Raises ``PriceError``."""
    pools = settings.pools
    window_ms = round(settings.engine.control_window_s * 1000)
    return Report(
        window=window,
        pools=[
            _pool(connection, name, pool, window, window_ms, at, by) for name, pool in pools.items()
        ],
        spends=spends(connection, window, but=list(pools)),
        energy=energy(connection, window),
    )


def _pool(
    connection: Connection,
    name: str,
    pool: PoolSettings,
    window: Window,
    window_ms: int,
    at: Sequence[str],
    by: str | None,
) -> PoolCost:
    (sums,) = usage(connection, window, name)
    whole = bill(pool, window, sums)
    groups = usage(connection, window, name, by=by) if by is not None else []
    elsewhere = []
    for wanted in at:
        tiers = chosen(connection, wanted, window.until_ms)
        other = counterfactual(connection, window, name, tiers, whole.total_nusd)
        elsewhere.append(Elsewhere(other, break_even(whole, other.cost.total_nusd)))
    return PoolCost(
        backend=name,
        pool=pool,
        nusd_per_h=nusd_per_h(pool),
        bill=whole,
        untold=untold(connection, window, name),
        savings=savings(connection, window, name, window_ms, busy_nusd_per_us(pool)),
        elsewhere=elsewhere,
        groups=list(zip(groups, shares(pool, whole, groups), strict=True)),
    )


def break_even(whole: Bill, elsewhere_nusd: int | None) -> Fraction | None:
    """The utilisation at which the tokens served would have cost the same elsewhere."""
    if whole.utilisation is None or not elsewhere_nusd:
        return None
    return whole.utilisation * whole.total_nusd / elsewhere_nusd


def spends(connection: Connection, window: Window, *, but: Sequence[str]) -> list[Spend]:
    """What rows say that they cost, by backend, those ``but`` left out; the dearest first."""
    c = request.c
    known = c.cost_nusd.is_not(None)

    def of_known(column):
        return total(case((known, column), else_=0))

    query = (
        select(
            c.backend,
            func.count().label("requests"),
            total(case((known, 0), else_=1)).label("unknown"),
            *(total(c[name]).label(name) for name in ("in_tok", "cached_tok", "out_tok")),
            of_known(c.in_tok).label("known_in_tok"),
            of_known(c.out_tok).label("known_out_tok"),
            of_known(c.cost_fresh_nusd).label("fresh_nusd"),
            of_known(c.cost_cached_nusd).label("cached_nusd"),
            of_known(c.cost_out_nusd).label("out_nusd"),
            of_known(c.cost_nusd).label("total_nusd"),
        )
        .where(window.rows(), c.backend.not_in(but))
        .group_by(c.backend)
    )
    found = [Spend(**row._asdict()) for row in connection.execute(query)]
    return sorted(found, key=lambda spend: (-spend.total_nusd, spend.backend))
