"""``agentspec route replay --trace``: every policy through the same traffic, one table.

``regret`` is what a policy lost beyond the best static one, as a share of that one's loss, over
the calls after the first ``burn_in``; below zero it was better. Where something changes,
``adapted`` is after how many calls, over the following ``WINDOW``, at most a quarter is left of
what staying (with the static policy that was best before) loses beyond the one that is best now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from agentspec.settings_routing import RoutingSettings

from .fleet import Change, Place
from .simulate import Line, chooser, run
from .thompson import LitellmThompson
from .trace import Chain, arrivals

WINDOW = 150
STEP = 25
LEFT = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """count: calls; the first burn_in of them are left out of the sums. every_s: between two traces
    that begin, on the average. changes: what happens on the way."""

    count: int
    burn_in: int
    every_s: float
    seeds: tuple[int, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Means over the seeds. usd: of the calls after the burn-in; slo: share that met the target."""

    policy: str
    usd: float
    slo: float
    loss_usd: float
    regret: float
    worst_regret: float
    adapted: float | None


def policies(places: Sequence[Place]) -> list[str]:
    static = [f"static:{place.name}" for place in places]
    return [*static, "cheapest", "fastest", "slo", "learned", LitellmThompson.name]


def table(
    traces: list[list[Chain]],
    places: tuple[Place, ...],
    settings: RoutingSettings,
    names: Sequence[str],
    plan: Plan,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """One row a policy. The static ones run in any case: the regret is against them."""
    static = [f"static:{place.name}" for place in places]
    wanted = list(dict.fromkeys([*names, *static]))
    lines: dict[tuple[str, int], list[Line]] = {}
    for seed in plan.seeds:
        come = list(arrivals(traces, plan.every_s, seed, 2 * plan.count))
        for name in wanted:
            progress(f"{name}, seed {seed}")
            choosing = chooser(name, places, settings, seed)
            lines[name, seed] = list(
                run(
                    choosing, come, places, settings,
                    count=plan.count, seed=seed, changes=plan.changes,
                )
            )  # fmt: skip
    return [_row(name, static, lines, plan) for name in names]


def _row(
    name: str, static: Sequence[str], lines: dict[tuple[str, int], list[Line]], plan: Plan
) -> Row:
    regrets, adapted = [], []
    for seed in plan.seeds:
        best = min(_loss(lines[s, seed][plan.burn_in :]) for s in static)
        regrets.append(_loss(lines[name, seed][plan.burn_in :]) / best - 1.0)
        if plan.changes:
            at = plan.changes[0].at
            stays = min(static, key=lambda s: _loss(lines[s, seed][:at]))
            moves = min(static, key=lambda s: _loss(lines[s, seed][at:]))
            after = [lines[one, seed][at:] for one in (name, stays, moves)]
            adapted.append(_adapted(*after))
    summed = [line for seed in plan.seeds for line in lines[name, seed][plan.burn_in :]]
    return Row(
        name,
        usd=sum(line.usd for line in summed) / len(plan.seeds),
        slo=fmean(line.met for line in summed),
        loss_usd=_loss(summed) / len(plan.seeds),
        regret=fmean(regrets),
        worst_regret=max(regrets),
        adapted=fmean(adapted) if adapted else None,
    )


def _loss(lines: Sequence[Line]) -> float:
    return sum(line.loss_usd for line in lines)


def _adapted(mine: Sequence[Line], stays: Sequence[Line], moves: Sequence[Line]) -> float:
    end = min(len(mine), len(stays), len(moves))
    for start in range(0, end - WINDOW, STEP):
        here = slice(start, start + WINDOW)
        worst, best = _loss(stays[here]), _loss(moves[here])
        if _loss(mine[here]) <= best + LEFT * max(worst - best, 0.0):
            return float(start)
    return float(end)
