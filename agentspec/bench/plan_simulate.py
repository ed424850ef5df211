"""The engine's scheduler on the cost curve that ``agentspec plan`` has computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentspec.engine.cost import CostCurve

from .simulate import NOISE, SPREAD, World, simulate

if TYPE_CHECKING:
    from agentspec.plan.planner import Simulation

MOST_CONCURRENCY = 256


def run(asked: Simulation) -> list[dict[str, Any]]:
    """A row a concurrency: tokens a second of "off", the widest fixed block and "adaptive".

    Acceptance varies by sequence and by token as in ``bench simulate``.
    """
    world = World(
        curve=CostCurve.of(asked.rows, asked.seconds_at),
        request_s=asked.request_s,
        rates=asked.rates,
        draft_s=asked.draft_s,
        by_token=asked.by_token,
        spread=SPREAD,
        noise=NOISE,
        most=len(asked.rates),
        tokens=64,
        rounds=2,
        least=24,
        places=max(asked.concurrency),
    )
    fixed = f"k{len(asked.rates)}"
    found = []
    for concurrency in asked.concurrency:
        if concurrency > MOST_CONCURRENCY:
            continue
        speeds = {
            mode: simulate(world, mode, concurrency).steady_tok_s
            for mode in ("off", fixed, "adaptive")
        }
        found.append(
            {"concurrency": concurrency}
            | {f"{mode}_tok_s": speed for mode, speed in speeds.items()}
            | {f"{fixed}_over_off": speeds[fixed] / speeds["off"]}
            | {"adaptive_over_off": speeds["adaptive"] / speeds["off"]}
        )
    return found
