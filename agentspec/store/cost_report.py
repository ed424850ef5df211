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
from .rebuild import floors
from .savings import Savings, savings
from .schema import request
from .slices import Slice, bounded, sums
from .usage import Pruned, Usage, pruned, untold, usage, with_rest
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
    in the sums; tokens are those of all. failed_nusd: of calls, also at other backends, that failed
    before this one was asked. None: only rows could tell, and they are pruned."""

    backend: str
    requests: int
    unknown: int
    in_tok: int
    cached_tok: int
    out_tok: int
    known_in_tok: int | None
    known_out_tok: int | None
    fresh_nusd: int | None
    cached_nusd: int | None
    out_nusd: int | None
    failed_nusd: int | None
    total_nusd: int

    def per_million_out(self) -> Fraction | None:
        """Known cost over the output tokens that it paid for."""
        return per_million(self.total_nusd, self.known_out_tok or 0)

    def per_million_total(self) -> Fraction | None:
        return per_million(self.total_nusd, (self.known_in_tok or 0) + (self.known_out_tok or 0))


@dataclass(frozen=True, slots=True)
class Report:
    """total_nusd: of all pools and all rows of known cost; unknown: requests without. pruned: what
    of the window has no rows any more, None where all are there. failed_nusd: what vendors were
    paid for calls that failed before a pool answered, which is in no other part."""

    window: Window
    pools: list[PoolCost]
    spends: list[Spend]
    energy: Energy
    pruned: Pruned | None = None
    failed_nusd: int = 0

    @property
    def total_nusd(self) -> int:
        billed = self.failed_nusd + sum(spend.total_nusd for spend in self.spends)
        return billed + sum(pool.bill.total_nusd for pool in self.pools)

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
    gone = pruned(connection, window)
    # Of time whose rows are gone it isn't known whether the engine speculated.
    prices = {name: None if gone else busy_nusd_per_us(pool) for name, pool in pools.items()}
    saved = savings(connection, window, prices, window_ms)
    return Report(
        window=window,
        pools=[
            _pool(connection, name, pool, window, saved[name], gone is not None, at, by)
            for name, pool in pools.items()
        ],
        spends=spends(connection, window, but=list(pools)),
        energy=energy(connection, window),
        pruned=gone,
        failed_nusd=failed_before(connection, window, list(pools)),
    )


def _pool(
    connection: Connection,
    name: str,
    pool: PoolSettings,
    window: Window,
    saved: Savings,
    gone: bool,
    at: Sequence[str],
    by: str | None,
) -> PoolCost:
    (all_of_it,) = usage(connection, window, name)
    whole = bill(pool, window, all_of_it)
    groups = usage(connection, window, name, by=by) if by is not None else []
    if gone and by is not None:
        groups = with_rest(all_of_it, groups)
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
        savings=saved,
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
    found = _spends_of_cells(connection, window, but)
    mixed = [spend.backend for spend in found if 0 < spend.unknown < spend.requests]
    if mixed and pruned(connection, window) is None:
        kept = [spend for spend in found if spend.backend not in mixed]
        found = [*kept, *_spends_of_rows(connection, window, mixed)]
    return sorted(found, key=lambda spend: (-spend.total_nusd, spend.backend))


def _spends_of_rows(connection: Connection, window: Window, backends: Sequence[str]) -> list[Spend]:
    """From the rows, which alone tell those of known cost from the others."""
    c = request.c
    cost = bounded(c.cost_nusd)
    known = cost.is_not(None)

    def of_known(name: str):
        return total(case((known, bounded(c[name])), else_=0))

    query = (
        select(
            c.backend,
            func.count().label("requests"),
            total(case((known, 0), else_=1)).label("unknown"),
            *(total(bounded(c[name])).label(name) for name in ("in_tok", "cached_tok", "out_tok")),
            of_known("in_tok").label("known_in_tok"),
            of_known("out_tok").label("known_out_tok"),
            of_known("cost_fresh_nusd").label("fresh_nusd"),
            of_known("cost_cached_nusd").label("cached_nusd"),
            of_known("cost_out_nusd").label("out_nusd"),
            of_known("cost_failed_nusd").label("failed_nusd"),
            of_known("cost_nusd").label("total_nusd"),
        )
        .where(window.rows(), c.backend.in_(backends))
        .group_by(c.backend)
    )
    return [Spend(**row._asdict()) for row in connection.execute(query)]


def failed_before(connection: Connection, window: Window, pools: Sequence[str]) -> int:
    """Nano-USD that vendors were paid for calls that failed before one of these answered."""
    whole = Slice(window, {}, floors(connection))
    found = sums(connection, whole, ("cost_failed_nusd",), by=("backend",))
    return sum(told["cost_failed_nusd"] for (name,), told in found.items() if name in pools)


def _spends_of_cells(connection: Connection, window: Window, but: Sequence[str]) -> list[Spend]:
    """From the rollups, which are quicker and hold also those rows that are gone. Where some rows
    are of known cost and some are not, they don't tell the tokens and the parts of either: None."""
    names = ("requests", "unpriced", "in_tok", "cached_tok", "out_tok", "cost_nusd")
    parts = ("cost_fresh_nusd", "cost_cached_nusd", "cost_out_nusd", "cost_failed_nusd")
    whole = Slice(window, {}, floors(connection))
    found = []
    for (name,), told in sums(connection, whole, (*names, *parts), by=("backend",)).items():
        if name in but:
            continue
        clear = not told["unpriced"]
        none = told["unpriced"] == told["requests"]
        told_of_known = {n: told[n] if clear else 0 if none else None for n in (*names, *parts)}
        fresh, cached, out, lost = (told_of_known[part] for part in parts)
        found.append(
            Spend(
                backend=name,
                requests=told["requests"],
                unknown=told["unpriced"],
                in_tok=told["in_tok"],
                cached_tok=told["cached_tok"],
                out_tok=told["out_tok"],
                known_in_tok=told_of_known["in_tok"],
                known_out_tok=told_of_known["out_tok"],
                fresh_nusd=fresh,
                cached_nusd=cached,
                out_nusd=out,
                failed_nusd=lost,
                total_nusd=told["cost_nusd"],
            )
        )
    return found
