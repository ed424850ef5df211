"""The page of costs: what was provisioned, what was billed, and for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentspec.settings import PoolSettings
from agentspec.store.cost_json import per_million
from agentspec.store.glance import Glance
from agentspec.store.provision import Bill

from . import text
from .tiles import Tile

_PARTS: tuple[str, ...] = ("Fresh prefill", "Cached input", "Decode", "Drafts", "Grammar")


@dataclass(frozen=True, slots=True)
class PoolTable:
    """One self-hosted backend. rows: name, dollars, share of the whole."""

    backend: str
    note: str
    rows: Sequence[tuple[str, str, str]]
    per_million: Sequence[tuple[str, str]]


def tiles(found: Glance) -> list[Tile]:
    """The numbers at the top."""
    pools = sum(bill.total_nusd for bill in found.bills.values())
    idle = sum(bill.idle_nusd for bill in found.bills.values() if bill.idle_us is not None)
    return [
        Tile("Cost", text.usd(found.total_nusd), "provisioned and billed"),
        Tile("Provisioned", text.usd(pools), text.plural(len(found.bills), "pool")),
        Tile("Idle", text.usd(idle), f"{text.share(idle / pools if pools else None)} of it"),
        Tile("Billed by request", text.usd(found.total_nusd - pools), "at dated prices"),
        Tile("Unknown cost", text.exact(found.unpriced), "requests without a price"),
    ]


def pool_tables(found: Glance, pools: Mapping[str, PoolSettings]) -> list[PoolTable]:
    """A table for each self-hosted backend with a price."""
    return [_table(name, pools[name], bill) for name, bill in found.bills.items()]


def _table(name: str, pool: PoolSettings, bill: Bill) -> PoolTable:
    def share(nusd: int) -> str:
        return text.share(nusd / bill.total_nusd if bill.total_nusd else None)

    parts: list[tuple[str, int]] = list(zip(_PARTS, bill.busy.values(), strict=True))
    if bill.idle_us is not None:
        parts.append(("Idle", bill.idle_nusd))
    rows = [(title, text.usd(nusd), share(nusd)) for title, nusd in parts]
    rows.append(("All", text.usd(bill.total_nusd), share(bill.total_nusd)))
    prices = per_million(bill)
    used = text.share(None if bill.utilisation is None else float(bill.utilisation))
    return PoolTable(
        backend=name,
        note=(
            f"{text.plural(pool.gpus, 'GPU')} for {bill.provisioned_ms / 3_600_000:,.2f} h, "
            f"{used} busy; split by {bill.split}"
        ),
        rows=rows,
        per_million=[
            ("output tokens, idle time included", text.usd(prices["all_per_out"])),
            ("input and output tokens, idle time included", text.usd(prices["all_per_total"])),
            ("output tokens, busy time only", text.usd(prices["busy_per_out"])),
        ],
    )
