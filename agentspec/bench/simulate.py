"""``bench simulate``: the engine's own scheduler on the cost curve of a machine that is not here.

Core, scheduler, budget, estimators and verification are those that serve; the model is replaced by
one of two tokens, and time by what the curve says. ``predict`` holds it against a published table:
the curve from its column without speculation, acceptance and the scale of draft costs fitted on its
single-stream row alone, all other rows predicted.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from agentspec.engine.core import Engine
from agentspec.engine.cost import CostCurve, interpolate
from agentspec.engine.modes import ADAPTIVE, BLIND
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from agentspec.settings_scheduling import SchedulingSettings

from . import report
from .load_drive import Block, Driver
from .simulate_machine import Clock, Draws, Machine, moved
from .simulate_presets import CURVES, DRAFT_MS, TABLES, Table

COLUMNS = ["table", "concurrency", "mode", "published", "predicted", "error", "fitted"]
PLAN_COLUMNS = ["machine", "concurrency", "mode", "tok_s", "over_off", "over_best_fixed"]
_PROMPT = 2
SPREAD = NOISE = 0.7
"""Of the log-odds of acceptance, between sequences and between tokens: a guess, no table says."""
_NORMAL = ((-1.7321, 1 / 6), (0.0, 2 / 3), (1.7321, 1 / 6))
"""Places and weights of Gauss-Hermite quadrature: exact up to the fifth moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A machine and its traffic. rates, spread, noise: of ``Draws``. draft_s: seconds of a draft by
    the sequences in it. tokens: of each answer. most: the most tokens drafted. by_token: of
    ``Draws``. bias: ``Draws.truth``. rounds: answers a stream; least: answers at all. places:
    sequences that could run together (what "switch60" looks at).
    """

    curve: CostCurve
    rates: Seq[float]
    draft_s: Seq[tuple[int, float]] = ((1, 0.0),)
    by_token: bool = False
    bias: float | None = None
    spread: float = 0.0
    noise: float = 0.0
    most: int = 7
    tokens: int = 64
    context: int = _PROMPT
    seed: int = 0
    rounds: int = 3
    least: int = 48
    places: int = 32

    def drafting_seconds(self, sequences: int) -> float:
        return interpolate(*_columns(self.draft_s), sequences)


def simulate(world: World, mode: str, concurrency: int) -> Block:
    """One closed loop: ``rounds`` requests a stream, greedy, all of the same length.

    A mode that learns has half an answer a stream before it, which is not counted (as the first
    round of ``bench load`` isn't).
    """
    clock = Clock()
    length = world.context + world.tokens
    pages = concurrency * (2 + length // 64)
    machine = Machine(world.curve, clock, num_pages=pages)
    draws = Draws(
        world.rates,
        clock,
        world.drafting_seconds,
        world.spread,
        world.noise,
        truth=world.bias,
        by_token=world.by_token,
        seed=world.seed,
        first=concurrency if mode in (ADAPTIVE, BLIND) else 0,
    )
    engine = Engine(
        machine,
        [draws],
        curve=world.curve,
        settings=EngineSettings(
            max_sequences=max(concurrency, world.places),
            max_draft_tokens=world.most,
            step_tokens=max(512, concurrency * (world.most + 1)),
            context_tokens=length + 64,
            kv_tokens=pages * 64,
            scheduling=SchedulingSettings(mode=mode),
        ),
        token_bytes=[b"a", b"b"],
        clock=clock,
    )
    count = max(world.rounds * concurrency, world.least)
    driver = Driver(engine, clock.seconds, clock.book)
    young = replace(world, tokens=world.tokens // 2)
    driver.closed([_request(young, -1 - i) for i in range(draws.first)], concurrency)
    return driver.closed([_request(world, i) for i in range(count)], concurrency)


def _request(world: World, number: int) -> GenerationRequest:
    return GenerationRequest(
        id=f"r{number}",
        prompt=[number >> place & 1 for place in range(world.context)],
        max_tokens=world.tokens,
        sampling=SamplingParams(temperature=0.0),
        sources=("draws",),
        cache_scope=f"s{number}",
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """What the single-stream row says: P(token k stands | those before it) = first * fade**k for an
    average sequence, and one factor on the draft costs of another model."""

    first: float
    fade: float
    draft: float
    error: float

    def rates(self, most: int) -> list[float]:
        return _rates(self.first, self.fade, most)


def _rates(first: float, fade: float, most: int) -> list[float]:
    return [first * fade**k for k in range(most)]


def fit(table: Table) -> Fit:
    """Least squares of the log ratio over a grid, on concurrency 1 and fixed widths alone."""
    streams = min(table.rows)
    widths = {int(m[1:]): speed for m, speed in table.rows[streams].items() if m[0] == "k"}
    fades = [1.0 - 0.02 * i for i in range(10)] if len(widths) > 1 else [0.96]
    drafts = [0.25 * i for i in range(13)] if len(widths) > 2 else [1.0]
    curve = table.machine()
    drafting = interpolate(*_columns(DRAFT_MS), streams) / 1000
    fits = []
    for first, fade in itertools.product([0.4 + 0.01 * i for i in range(60)], fades):
        expected = expected_tokens(_rates(first, fade, table.most), SPREAD, NOISE)
        for draft in drafts:
            logs = [
                math.log(
                    streams
                    * expected[width]
                    / (
                        curve.seconds(streams * (1 + width))
                        + draft * drafting
                        + streams * curve.span_s
                    )
                    / speed
                )
                for width, speed in widths.items()
            ]
            fits.append(Fit(first, fade, draft, sum(log * log for log in logs)))
    return min(fits, key=lambda found: found.error)


def expected_tokens(rates: Seq[float], spread: float, noise: float) -> list[float]:
    """Tokens of a pass that verifies 0, 1, ... tokens, the mean over ``Draws``' sequences."""
    totals = [0.0] * (len(rates) + 1)
    for shift, share in _NORMAL:
        alive, tokens = 1.0, 1.0
        totals[0] += share
        for place, rate in enumerate(rates, start=1):
            own = moved(rate, spread * shift)
            alive *= sum(part * moved(own, noise * more) for more, part in _NORMAL)
            tokens += alive
            totals[place] += share * tokens
    return totals


def _columns(points: Seq[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [count for count, _ in points], [value for _, value in points]


def published(table: Table, tokens: int = 48) -> World:
    """The machine of a table, with the acceptance that its single-stream row tells."""
    fitted = fit(table)
    curve = table.machine()
    return World(
        curve=curve,
        rates=fitted.rates(table.most),
        draft_s=[(count, fitted.draft * ms / 1000) for count, ms in DRAFT_MS],
        spread=SPREAD,
        noise=NOISE,
        most=table.most,
        tokens=tokens,
    )


def predict(table: Table, *, tokens: int = 48, most_concurrency: int = 256) -> list[dict[str, Any]]:
    """Published beside predicted, a row a cell; ``fitted`` marks the row that was fitted on."""
    world = published(table, tokens)
    found = []
    for concurrency, row in table.rows.items():
        if concurrency > most_concurrency:
            continue
        for mode, told in row.items():
            report.progress(f"{table.name}: concurrency {concurrency}, {mode}")
            predicted = simulate(world, mode, concurrency).steady_tok_s
            found.append(
                {"table": table.name, "concurrency": concurrency, "mode": mode}
                | {"published": told, "predicted": predicted}
                | {"error": predicted / told - 1}
                | {"fitted": concurrency == min(table.rows) and mode[0] == "k"}
            )
    return found


def plan(
    machine: str, modes: Seq[str], concurrency: Seq[int], world: World
) -> list[dict[str, Any]]:
    """What each mode gives on a machine; ``over_best_fixed``: against the best kN of the list."""
    found = []
    for streams in concurrency:
        speeds = {}
        for mode in dict.fromkeys(("off", *modes)):
            report.progress(f"{machine}: concurrency {streams}, {mode}")
            speeds[mode] = simulate(world, mode, streams).steady_tok_s
        fixed = [speed for mode, speed in speeds.items() if mode == "off" or mode[0] == "k"]
        found += [
            {"machine": machine, "concurrency": streams, "mode": mode, "tok_s": speed}
            | {"over_off": speed / speeds["off"], "over_best_fixed": speed / max(fixed)}
            for mode, speed in speeds.items()
        ]
    return found


def run(
    machine: str, modes: Seq[str], concurrency: Seq[int], acceptance: Seq[float], tokens: int
) -> dict[str, Any]:
    """machine: one of ``CURVES`` (a plan), or of ``TABLES`` (held against what was published)."""
    if machine in TABLES:
        rows = predict(TABLES[machine], tokens=tokens, most_concurrency=max(concurrency))
        blind = [abs(row["error"]) for row in rows if not row["fitted"]]
        more = {"median_error": statistics.median(blind), "source": TABLES[machine].source}
        return report.build(rows, **more)
    world = World(curve=CURVES[machine], rates=acceptance, spread=1.0, noise=1.0, tokens=tokens)
    return report.build(plan(machine, modes, concurrency, replace(world, most=len(acceptance))))
