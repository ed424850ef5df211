"""Cost at a glance, of any stretch of time at once: from the rollups alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from agentspec.settings import PoolSettings

from .provision import Bill, bill
from .rebuild import floors
from .slices import Slice, sums
from .usage import SUMMED, Usage
from .window import Window

_SUMMED = ("requests", "unpriced", "in_tok", "cached_tok", "out_tok", "cost_nusd")
_FAILED = "cost_failed_nusd"


@dataclass(frozen=True, slots=True)
class Billed:
    """What the rows of a backend say that they cost. unpriced: requests that don't say it."""

    backend: str
    requests: int
    unpriced: int
    in_tok: int
    cached_tok: int
    out_tok: int
    cost_nusd: int


@dataclass(frozen=True, slots=True)
class Glance:
    """bills: of backends with a pool; billed: of the others, the dearest first. failed_nusd: what
    vendors were paid for calls that failed before a pool answered."""

    bills: dict[str, Bill]
    billed: list[Billed]
    failed_nusd: int = 0

    @property
    def total_nusd(self) -> int:
        pools = sum(bill.total_nusd for bill in self.bills.values())
        return pools + sum(b.cost_nusd for b in self.billed) + self.failed_nusd

    @property
    def unpriced(self) -> int:
        return sum(billed.unpriced for billed in self.billed)


def glance(connection: Connection, pools: Mapping[str, PoolSettings], window: Window) -> Glance:
    """The window's cost by backend; the same numbers as ``cost_report.report``."""
    whole = Slice(window, {}, floors(connection))
    names = tuple(dict.fromkeys((*_SUMMED, _FAILED, *(SUMMED if pools else ()))))
    told = sums(connection, whole, names, by=("backend",))
    found = {name: values for (name,), values in told.items()}
    used = {
        name: Usage("", **{field: found[name][field] for field in SUMMED})
        if name in found
        else Usage()
        for name in pools
    }
    billed = [
        Billed(name, **{field: values[field] for field in _SUMMED})
        for name, values in found.items()
        if name not in pools
    ]
    return Glance(
        {name: bill(pool, window, used[name]) for name, pool in pools.items()},
        sorted(billed, key=lambda b: (-b.cost_nusd, b.backend)),
        sum(values[_FAILED] for name, values in found.items() if name in pools),
    )
