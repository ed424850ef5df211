"""The engine's scheduler on the cost curve that ``agentspec plan`` has computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentspec.engine.cost import CostCurve

from .simulate import NOISE, SPREAD, World, simulate

if TYPE_CHECKING:
    from agentspec.plan.planner import Simulation

MOST_CONCURRENCY = 256


def world_of(asked: Simulation) -> World:
    """Acceptance varies by sequence and by token as in ``bench simulate``."""
    return World(
        curve=CostCurve.of(asked.rows, asked.seconds_at, asked.request_s),
        rates=asked.rates,
        draft_s=asked.draft_s,
        by_token=asked.by_token,
        spread=SPREAD,
        noise=NOISE,
        most=asked.most,
        tokens=64,
        rounds=2,
        least=24,
        places=max(asked.widths),
    )


def run(asked: Simulation) -> list[dict[str, Any]]:
    """A row a concurrency: tokens a second of "off", the roofline's best width, and "adaptive"."""
    world = world_of(asked)
    found = []
    for concurrency, width in asked.widths.items():
        if concurrency > MOST_CONCURRENCY:
            continue
        modes = {"off": "off", "fixed": f"k{width}", "adaptive": "adaptive"}
        speeds = {
            name: simulate(world, mode, concurrency).steady_tok_s for name, mode in modes.items()
        }
        found.append(
            {"concurrency": concurrency, "width": width}
            | {f"{name}_tok_s": speed for name, speed in speeds.items()}
            | {"fixed_over_off": speeds["fixed"] / speeds["off"]}
            | {"adaptive_over_off": speeds["adaptive"] / speeds["off"]}
        )
    return found
