"""The cost report as lines of text. Dollars are rounded for reading; ``--json`` is exact."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from .cost_json import per_million, rounded
from .cost_report import Elsewhere, PoolCost, Report, Spend
from .price_cli import date
from .savings import Savings
from .usage import Pruned

_PARTS = ("fresh prefill", "cached", "decode", "drafts", "grammar")
_BASES = {
    "all_per_out": "all, per M out",
    "all_per_total": "all, per M in + out",
    "busy_per_out": "busy, per M out",
    "loaded_prefill_per_fresh_in": "prefill with its idle, per M fresh in",
    "loaded_generating_per_out": "generating with its idle, per M out",
}


def lines(report: Report) -> list[str]:
    """The whole report."""
    told = [
        f"{_time(report.window.since_ms)} to {_time(report.window.until_ms)} UTC",
        f"total                  {usd(report.total_nusd):>14}",
    ]
    if report.unknown:
        told.append(f"requests of unknown cost {report.unknown:>12,}  (not in the total)")
    if report.pruned is not None:
        told += _pruned(report.pruned)
    for pool in report.pools:
        told += ["", *_pool(pool)]
    for spend in report.spends:
        told += ["", *_spend(spend)]
    if report.failed_nusd:
        told += ["", f"calls that failed before a pool answered {usd(report.failed_nusd):>14}"]
    told += ["", _energy(report)]
    return told


def _pruned(found: Pruned) -> list[str]:
    told = [
        f"the rows of {found.requests:,} requests before {_time(found.before_ms)} are pruned: "
        "totals hold them, what only rows can tell (groups by session or request, savings, "
        "requests without busy time, prices by length) does not"
    ]
    told += [
        f"nothing is known of requests from {_time(one.since_ms)} to {_time(one.until_ms)}"
        for one in found.unread
    ]
    return told


def usd(nusd: int | None) -> str:
    """Dollars, with as many places as small amounts need."""
    if nusd is None:
        return "unknown"
    value = Decimal(nusd).scaleb(-9)
    places = 2 if not value or abs(value) >= 1 else 4 if abs(value) >= Decimal("0.01") else 9
    sign = "-" if value < 0 else ""
    return f"{sign}${abs(value):,.{places}f}"


def _pool(cost: PoolCost) -> list[str]:
    bill, pool = cost.bill, cost.pool
    hours = Decimal(bill.provisioned_ms) / 3_600_000
    price = usd(rounded(cost.nusd_per_h))
    told = [
        f"{cost.backend}: {pool.gpus} GPUs, {price}/h, {hours:.2f} h provisioned, "
        f"split by {bill.split}",
        f"  all                  {usd(bill.total_nusd):>14}",
    ]
    for name, nusd in zip(_PARTS, bill.busy.values(), strict=True):
        told.append(f"    {name:<18} {usd(nusd):>14}")
    idle = "unknown" if bill.idle_us is None else usd(bill.idle_nusd)
    told.append(f"    {'idle':<18} {idle:>14}")
    told.append(f"  of it rejected drafts {usd(bill.rejected_nusd):>13}  (estimate by rows)")
    used = "unknown" if bill.utilisation is None else f"{float(bill.utilisation):.1%}"
    told.append(f"  utilisation {used}; {bill.usage.requests:,} requests; {_tokens(cost)}")
    if cost.untold:
        told.append(f"  {cost.untold:,} requests told no busy time: theirs shows as idle")
    if bill.overrun_us:
        told.append(f"  busy for {bill.overrun_us / 1e6:.1f} s more than was provisioned")
    prices = per_million(bill)
    told += [f"  {usd(prices[name]):>14}  {text}" for name, text in _BASES.items()]
    told.append("  " + _savings(cost.savings))
    told += ["  " + _elsewhere(one) for one in cost.elsewhere]
    for group, parts in cost.groups:
        told.append(f"  {usd(parts.total_nusd):>14}  busy  {group.group or '(none)'}")
    return told


def _tokens(cost: PoolCost) -> str:
    usage = cost.bill.usage
    return (
        f"tokens in {usage.fresh_tok:,} fresh, {usage.cached_tok:,} cached, out {usage.out_tok:,}"
    )


def _savings(found: Savings) -> str:
    if found.share is None or found.low is None or found.high is None:
        return f"saved by speculation: unknown ({found.unknown})"
    assert found.on is not None and found.off is not None
    return (
        f"saved by speculation: {found.share:.1%} of the time to generate a token "
        f"(95 %: {found.low:.1%} to {found.high:.1%}; {found.on.windows} windows with, "
        f"{found.off.windows} without), {usd(found.saved_nusd)} "
        f"({usd(found.low_nusd)} to {usd(found.high_nusd)}) of busy time"
    )


def _elsewhere(one: Elsewhere) -> str:
    bill = one.bill
    told = f"{bill.model} ({bill.source}, {date(bill.valid_from_ms)}): "
    if bill.cost.total_nusd is None:
        return told + "unknown, a price is missing"
    told += f"{usd(bill.cost.total_nusd)}, saved {usd(bill.saved_nusd)}"
    if one.break_even is not None:
        told += f"; break-even at {float(one.break_even):.1%} utilisation"
    return told + ("; its tokenizer differs" if bill.tokenizer_differs else "")


def _spend(spend: Spend) -> list[str]:
    told = [
        f"{spend.backend or '(ran nowhere)'}: {spend.requests:,} requests, "
        f"{spend.unknown:,} of unknown cost",
        f"  all                  {usd(spend.total_nusd):>14}",
    ]
    parts = (spend.fresh_nusd, spend.cached_nusd, spend.out_nusd)
    for name, nusd in zip(("fresh in", "cached in", "out"), parts, strict=True):
        told.append(f"    {name:<18} {usd(nusd):>14}")
    if spend.failed_nusd:
        told.append(f"    {'failed calls':<18} {usd(spend.failed_nusd):>14}  (before this one)")
    told.append(f"  {usd(rounded(spend.per_million_out())):>14}  all, per M out")
    told.append(f"  {usd(rounded(spend.per_million_total())):>14}  all, per M in + out")
    return told


def _energy(report: Report) -> str:
    found = report.energy
    if found.mj is None:
        return "energy: unknown (no readings; they need an NVIDIA GPU and nvidia-ml-py)"
    out = sum(pool.bill.usage.out_tok for pool in report.pools)
    each = f", {found.mj / 1000 / out:,.2f} J per out token of all pools" if out else ""
    return (
        f"energy: {found.mj / 3.6e9:,.3f} kWh in {found.covered_ms / 3.6e6:.2f} h of "
        f"{found.devices} GPUs{each}"
    )


def _time(ts_ms: int) -> str:
    return f"{datetime.fromtimestamp(ts_ms / 1000, UTC):%Y-%m-%d %H:%M}"
