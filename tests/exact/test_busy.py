"""The busy time of requests adds up to the engine's: mixed traffic on the embedded model."""

from __future__ import annotations

import time

import pytest

from tests.exact.conftest import ISAS
from tests.exact.world import Case, drive

pytestmark = pytest.mark.model
TRAFFIC = [(0, 1, "suffix"), (20, 0, "both"), (33, 0, "suffix"), (34, 1, "off"), (38, 0, "script")]


class Clock:
    """The engine's clock, which remembers its first and its last reading of every step."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []

    def __call__(self) -> int:
        now_ns = time.monotonic_ns()
        if self.steps:
            self.steps[-1].append(now_ns)
        return now_ns


def test_busy_time_adds_up(make_world):
    world, clock = make_world(ISAS[0], 16), Clock()
    engine = world.engine(step_tokens=64, clock=clock)
    step = engine.step

    def stepping():
        clock.steps.append([])
        return step()

    engine.step = stepping
    requests = [world.request(Case(prompt, t), s, "one scope") for prompt, t, s in TRAFFIC]
    told = drive(engine, requests, every=2, abort=(world.request(Case(24, 0)), 3))
    reports = [one.report.busy_us for one in told.values()]
    assert len(reports) == len(TRAFFIC) + 1
    billed = {
        kind: sum(getattr(busy, kind) for busy in reports)
        for kind in ("prefill", "decode", "draft", "grammar")
    }
    engine_us = engine.stats().busy_us
    assert billed == {kind: getattr(engine_us, kind) for kind in billed}
    assert all(billed.values())
    wall_us = sum(step[-1] - step[0] for step in clock.steps) / 1000
    assert sum(billed.values()) == pytest.approx(wall_us, rel=0.01)
