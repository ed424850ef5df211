"""Machines that are not here: the engine's own code on a booked clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentspec.bench.load import Plan as LoadPlan
from agentspec.bench.load import interval, summary
from agentspec.bench.load_cases import Arrival, mixed, read_trace
from agentspec.bench.load_cli import modes
from agentspec.bench.load_drive import Block, Driver, Seen
from agentspec.bench.load_plot import cliff
from agentspec.bench.plan_simulate import world_of
from agentspec.bench.simulate import World, expected_tokens, fit, plan, published, simulate
from agentspec.bench.simulate_presets import CURVES, DRAFT_MS, TABLES
from agentspec.bench.workloads import BenchError
from agentspec.engine.cost import CostCurve
from agentspec.engine.request import GenerationRequest, Output
from agentspec.plan.hardware import gpu
from agentspec.plan.planner import Ask, Simulation, rates_of
from agentspec.plan.planner import plan as run_plan
from agentspec.plan.presets import model
from agentspec.plan.roofline import Machine
from agentspec.wire.errors import Overloaded

STEEP = CostCurve.of([1, 2, 4, 8, 64], [4e-3, 4.2e-3, 5e-3, 9e-3, 80e-3])
GOOD = World(curve=STEEP, rates=[0.9] * 7, tokens=48, least=4)


def test_a_simulated_step_takes_what_the_curve_says():
    """One stream without drafts: so many tokens, so many passes of one row."""
    block = simulate(GOOD, "off", 1)
    rows = sum(seen.tokens for seen in block.seen)
    prompts = len(block.seen) * (STEEP.seconds(2) - STEEP.seconds(1))
    assert block.wall_s == pytest.approx(rows * STEEP.seconds(1) + prompts, rel=1e-6)


def test_acceptance_is_what_was_asked_for():
    block = simulate(replace(GOOD, rates=[0.8, 0.5, 0.5], rounds=40), "k3", 1)
    accepted, steps = sum(s.accepted for s in block.seen), sum(s.steps for s in block.seen)
    assert accepted / steps == pytest.approx(0.8 + 0.4 + 0.2, rel=0.06)
    assert expected_tokens([0.8, 0.5, 0.5], 0.0, 0.0) == pytest.approx([1.0, 1.8, 2.2, 2.4])


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("streams", [1, 8])
def test_adaptive_is_never_slower_than_plain(rate: float, streams: int):
    """Drafts cost a twentieth of a pass, confidences say 0.8 whatever the truth is."""
    world = replace(
        GOOD,
        rates=[0.8] * 7,
        bias=rate,
        draft_s=[(1, 2e-4), (8, 4e-4)],
        tokens=160,
        rounds=2,
        least=10,
    )
    off, adaptive = (simulate(world, mode, streams).steady_tok_s for mode in ("off", "adaptive"))
    assert adaptive >= 0.98 * off
    if rate == 0.9 and streams == 1:
        assert adaptive > 1.2 * off


RATES = (0.8, 0.75, 0.7, 0.7, 0.65, 0.65, 0.6, 0.6)
CPU = World(curve=CURVES["cpu2"], rates=RATES, most=8, spread=1.0, noise=1.0, least=24)
DRAFT_S = [(count, ms / 1000) for count, ms in DRAFT_MS]
FLASH = replace(CPU, curve=CURVES["v4-flash-4xb300"], draft_s=DRAFT_S, most=7)
MODEL_S = [(1, 8e-3), (32, 40e-3)]
"""Eight passes of a draft model that costs a quarter of its target."""


def _large() -> World:
    """Llama-3.1-70B on eight H100, drafts by Llama-3.1-8B, as ``agentspec plan`` has it."""
    preset = model("Llama-3.1-70B")
    rates = rates_of(preset)
    ask = Ask(
        preset, preset.draft, None, Machine(gpu("H100"), 8), 8192, None, rates, "", True, None
    )
    simulations: list[Simulation] = []
    run_plan(ask, lambda simulation: simulations.append(simulation) or [])
    return world_of(simulations[0])


@pytest.mark.parametrize(
    ("name", "world", "fixed"),
    [
        ("free drafts, two cores", lambda: CPU, {1: "k3", 8: "k1"}),
        (
            "a draft model, two cores",
            lambda: replace(CPU, draft_s=MODEL_S, by_token=True),
            {4: "k1"},
        ),
        ("a block, four GPUs", lambda: FLASH, {1: "k7", 16: "k5"}),
        ("V4-Pro", lambda: published(TABLES["v4-pro-8xb300"]), {1: "k5", 16: "k3"}),
        ("V4-Flash", lambda: published(TABLES["v4-flash-mi355x"]), {4: "k5", 32: "k3"}),
        ("a draft model of 8B, eight GPUs", _large, {1: "k1", 16: "k1", 104: "k1"}),
    ],
)
def test_adaptive_is_near_the_best_fixed_width(
    name: str, world: Callable[[], World], fixed: dict[int, str]
):
    """fixed: by concurrency, the best width, or one near it (V4: as published)."""
    for concurrency, best in fixed.items():
        rows = plan(name, (best, "adaptive"), (concurrency,), world())
        (adaptive,) = (row for row in rows if row["mode"] == "adaptive")
        assert adaptive["over_best_fixed"] >= 0.98, adaptive
        pays = max(row["over_off"] for row in rows if row["mode"] != "adaptive") > 1.0
        assert adaptive["over_off"] >= 1.0 or not pays, adaptive


def test_a_fit_looks_at_one_stream_only():
    table = TABLES["v4-pro-8xb300"]
    spoilt = replace(
        table,
        rows={n: row if n == 1 else {**row, "k7": 1.0, "k1": 1.0} for n, row in table.rows.items()},
    )
    assert fit(spoilt) == fit(table)


class Script:
    """An engine that gives every request two tokens a step, four in all; two have room."""

    def __init__(self, clock: list[float]):
        self.clock, self.left = clock, dict[str, int]()

    def add(self, request: GenerationRequest) -> None:
        if len(self.left) == 2:
            raise Overloaded("full")
        self.left[request.id] = 4

    def has_work(self) -> bool:
        return bool(self.left)

    def step(self) -> list[Output]:
        self.clock[0] += 1.0
        outputs = []
        for id in list(self.left):
            self.left[id] -= 2
            ended = self.left[id] == 0
            outputs.append(Output(id=id, tokens=2, finish_reason="stop" if ended else None))
            if ended:
                del self.left[id]
        return outputs


def _requests(count: int) -> list[GenerationRequest]:
    return [GenerationRequest(id=str(i), prompt=[1], max_tokens=4) for i in range(count)]


def _driver() -> Driver:
    clock = [0.0]

    def idle(seconds: float) -> None:
        clock[0] += seconds

    return Driver(Script(clock), lambda: clock[0], idle)


def test_a_closed_loop_keeps_its_streams_busy():
    block = _driver().closed(_requests(4), 2)
    assert (block.wall_s, block.tok_s, block.shed) == (4.0, 4.0, 0)
    assert [seen.ttft_s for seen in block.seen] == [1.0] * 4
    assert [seen.tpot_s for seen in block.seen] == [0.5] * 4
    assert (block.full_s, block.full_tokens) == (4.0, 16)


def test_arrivals_wait_for_nobody_and_a_full_engine_refuses():
    arrivals = list(zip([0.0, 0.0, 0.5, 100.0], _requests(4), strict=True))
    block = _driver().arriving(arrivals)
    assert block.shed == 1 and len(block.seen) == 3
    assert block.wall_s == 102.0 and block.seen[-1].ttft_s == 1.0


def test_goodput_asks_for_both_limits():
    seen = [
        Seen(0.0, first_s=1.0, last_s=3.0, tokens=5, first_tokens=1),
        Seen(0.0, first_s=9.0, last_s=9.5, tokens=5, first_tokens=1),
        Seen(0.0, first_s=1.0, last_s=9.0, tokens=5, first_tokens=1),
        Seen(0.0, first_s=1.0, last_s=1.0, tokens=1, first_tokens=1),
    ]
    assert Block(seen, wall_s=10.0).goodput(2.0, 0.6) == pytest.approx(0.2)


def test_a_trace_is_divided_and_hurried(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,110,1\n"
    )
    assert read_trace(path, 4.0, 10, speed=2.0) == [Arrival(0.0, 1202, 2), Arrival(1.0, 28, 1)]
    path.write_text("t_s,in_tokens,out_tokens\n7.5,8,4\n")
    assert read_trace(path, 4.0, 10) == [Arrival(0.0, 2, 1)]
    path.write_text("when,how_much\n1,2\n")
    with pytest.raises(BenchError):
        read_trace(path, 4.0, 10)


def test_mixed_prompts_take_turns_and_are_the_same_for_all():
    first, second = (mixed(("tool", "chat"), 3) for _ in range(2))
    names = [next(first).id for _ in range(50)]
    assert names == [next(second).id for _ in range(50)]
    assert len(set(names)) > 4


def test_modes_in_ranges():
    assert modes("off,k1..k3,adaptive") == ("off", "k1", "k2", "k3", "adaptive")


def _block(tokens: int) -> Block:
    return Block([Seen(0.0, 1.0, 2.0, tokens, 1)], wall_s=2.0)


def test_a_mode_is_held_against_off_of_its_own_round():
    """The machine halves its speed in the second round; the ratio does not move."""
    rounds = [
        {"off": _block(100), "adaptive": _block(120)},
        {"off": _block(50), "adaptive": _block(60)},
    ]
    load = LoadPlan(("adaptive",), (1,), ("chat",))
    rows = {row["mode"]: row for row in summary(rounds, load, 1)}
    assert rows["adaptive"]["over_off"] == pytest.approx(1.2)
    assert rows["adaptive"]["over_off_low"] == pytest.approx(1.2)
    low, high = interval([1.0, 1.1, 1.2, 1.3, 1.4])
    assert 1.0 <= low < 1.2 < high <= 1.4


def test_the_plot_holds_every_mode():
    rows = [
        {"mode": mode, "concurrency": n, "tok_s": 10.0 * n}
        for mode in ("off", "adaptive", "<k1>")
        for n in (1, 2, 4)
    ]
    picture = cliff(rows)
    assert picture.count("<polyline") == 3 and "&lt;k1&gt;" in picture
