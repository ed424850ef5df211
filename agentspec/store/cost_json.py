"""The cost report as plain values: money in whole nano-USD, shares as numbers, None: unknown."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from .cost_report import Elsewhere, PoolCost, Report, Spend
from .money import half_even
from .provision import Bill, Parts


def as_json(report: Report) -> dict[str, Any]:
    """Everything the report holds."""
    return {
        "since_ms": report.window.since_ms,
        "until_ms": report.window.until_ms,
        "total_nusd": report.total_nusd,
        "requests_of_unknown_cost": report.unknown,
        "pruned": None if report.pruned is None else asdict(report.pruned),
        "pools": [_pool(pool) for pool in report.pools],
        "billed": [_spend(spend) for spend in report.spends],
        "failed_before_a_pool_nusd": report.failed_nusd,
        "energy": asdict(report.energy),
    }


def _pool(cost: PoolCost) -> dict[str, Any]:
    bill = cost.bill
    return {
        "backend": cost.backend,
        "gpus": cost.pool.gpus,
        "gpu_usd_per_h": cost.pool.gpu_usd_per_h,
        "nusd_per_h": half_even(cost.nusd_per_h),
        "split_by": bill.split,
        "provisioned_ms": bill.provisioned_ms,
        "utilisation": _number(bill.utilisation),
        "total_nusd": bill.total_nusd,
        "busy": _parts(bill.busy),
        "idle_nusd": None if bill.idle_us is None else bill.idle_nusd,
        "loaded": _parts(bill.loaded),
        "of_which_rejected_drafts_nusd": bill.rejected_nusd,
        "overrun_us": bill.overrun_us,
        "usage": {k: v for k, v in asdict(bill.usage).items() if k != "group"},
        "per_million": per_million(bill),
        "requests_without_busy_time": cost.untold,
        "savings": asdict(cost.savings),
        "elsewhere": [_elsewhere(one) for one in cost.elsewhere],
        "groups": [{**asdict(group), "busy": _parts(parts)} for group, parts in cost.groups],
    }


def per_million(bill: Bill) -> dict[str, int | None]:
    """Nano-USD per million tokens, each under the name of its basis: which dollars, over which
    tokens. Loaded: idle time included."""
    usage, loaded, busy = bill.usage, bill.loaded, bill.busy
    generating = loaded.decode_nusd + loaded.draft_nusd + loaded.grammar_nusd
    return {
        "all_per_out": rounded(bill.per_million_out()),
        "all_per_total": rounded(bill.per_million_total()),
        "busy_per_out": _per(busy.total_nusd, usage.out_tok),
        "busy_per_total": _per(busy.total_nusd, usage.in_tok + usage.out_tok),
        "loaded_prefill_per_fresh_in": _per(loaded.fresh_nusd, usage.fresh_tok),
        "loaded_prefill_per_cached_in": _per(loaded.cached_nusd, usage.cached_tok),
        "loaded_generating_per_out": _per(generating, usage.out_tok),
    }


def rounded(value: Fraction | None) -> int | None:
    return None if value is None else half_even(value)


def _per(nusd: int, tokens: int) -> int | None:
    return half_even(Fraction(nusd * 10**6, tokens)) if tokens else None


def _parts(parts: Parts) -> dict[str, int]:
    return {**asdict(parts), "total_nusd": parts.total_nusd}


def _spend(spend: Spend) -> dict[str, Any]:
    return {
        **asdict(spend),
        "per_million": {
            "all_per_out": rounded(spend.per_million_out()),
            "all_per_total": rounded(spend.per_million_total()),
        },
    }


def _elsewhere(one: Elsewhere) -> dict[str, Any]:
    return {
        **asdict(one.bill),
        "total_nusd": one.bill.cost.total_nusd,
        "saved_nusd": one.bill.saved_nusd,
        "break_even_utilisation": _number(one.break_even),
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
