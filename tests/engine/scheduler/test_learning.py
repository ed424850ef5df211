"""What the scheduler learns while serving: costs, confidences, and whom to ask."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.acceptance import Acceptance
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import FORCED, Proposal
from agentspec.engine.gate import PROBING_SHARE, Gate
from agentspec.engine.modes import Mode, UnknownMode, best_width
from agentspec.engine.policy import Policy
from agentspec.engine.pricing import Line, LiveCurve, Load, StepCosts

CURVE = CostCurve((1, 4, 8, 16, 32), (4.0, 4.4, 7.0, 11.0, 20.0), (1, 8), (0.001, 0.002))
SHAPES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4000)), min_size=1, max_size=4).map(
    Load.of
)


@given(st.lists(st.tuples(SHAPES, st.floats(0.01, 1000.0)), max_size=60))
def test_a_live_curve_never_falls_whatever_the_clock_says(seen):
    curve = LiveCurve(CURVE)
    for load, seconds in seen:
        curve.saw(load, seconds)
        snapshot = curve.curve  # its own checks: positive, never falling
        assert snapshot.seconds(3) == pytest.approx(curve.seconds(3))


def test_a_live_curve_finds_the_true_shape_through_outliers():
    """Eight rows cost twice what was profiled; one pass in ten is held up by the machine."""
    true = CostCurve((1, 4, 8, 16, 32), (4.0, 4.4, 14.0, 15.0, 20.0), (1, 8), (0.001, 0.002))
    curve, draw = LiveCurve(CURVE), random.Random(1)
    for _ in range(4000):
        spans = [(draw.choice([1, 1, 4, 8]), draw.choice([200, 1000, 4000]))]
        load = Load.of(spans)
        exact = true.seconds(load.rows) + true.attend(spans[0][0]) * spans[0][1]
        curve.saw(load, exact * (5.0 if draw.random() < 0.1 else 1.0))
    for context in (200, 4000):
        one, eight = (curve.pass_seconds(Load.of([(n, context)])) for n in (1, 8))
        truth = [true.seconds(n) + true.attend(n) * context for n in (1, 8)]
        assert eight / one == pytest.approx(truth[1] / truth[0], rel=0.12)


def test_a_machine_that_is_slow_for_everybody_keeps_its_shape():
    """Only single rows are seen, three times as slow: eight rows are taken to be as slow."""
    curve = LiveCurve(CURVE)
    before = curve.seconds(8) / curve.seconds(1)
    for _ in range(300):
        curve.saw(Load(1, {1: 0}), 12.0)
    assert curve.seconds(1) == pytest.approx(12.0, rel=0.02)
    assert curve.seconds(8) / curve.seconds(1) == pytest.approx(before, rel=0.25)


def test_a_live_curve_tells_sequences_from_rows():
    """What each of many sequences adds is no part of what their drafts' rows cost."""
    true = CostCurve((1, 4, 8, 16, 32), (4.0, 4.4, 7.0, 11.0, 20.0), (1, 8), (0.0, 0.0), 0.5)
    curve = LiveCurve(true)
    for _ in range(300):
        curve.saw(Load.of([(1, 0)] * 16), true.seconds(16) + 8.0)
    assert curve.seconds(24) - curve.seconds(16) == pytest.approx(4.5, rel=1e-6)
    assert curve.pass_seconds(Load.of([(2, 0)] * 8)) == pytest.approx(15.0, rel=1e-6)
    for _ in range(300):
        curve.saw(Load.of([(1, 0)] * 16), 3 * (true.seconds(16) + 8.0))
    assert curve.curve.span_s == pytest.approx(1.5, rel=0.1)


def test_rows_within_a_time():
    curve = LiveCurve(CURVE)
    assert curve.rows_within(3.0) == 0
    assert curve.rows_within(7.0) == 8
    assert (
        curve.seconds(curve.rows_within(13.0)) <= 13.0 < curve.seconds(curve.rows_within(13.0) + 1)
    )


def test_python_is_priced_by_sequences_and_drafted_tokens():
    costs, draw = StepCosts(LiveCurve(CURVE)), random.Random(2)
    for _ in range(6000):
        sequences, free, masked, forced = (
            draw.randint(low, most) for low, most in ((1, 8), (0, 30), (0, 30), (0, 30))
        )
        seconds = 0.2 + 0.05 * sequences + 0.03 * free + 0.09 * masked + 0.01 * forced
        costs.rest.saw(seconds, 1, sequences, free, masked, forced)
    assert costs.rest.seconds(1, 4, 20, 10, 5) == pytest.approx(1.95, rel=0.05)
    assert costs.token_seconds(0.0) == pytest.approx(0.03, rel=0.2)
    assert costs.token_seconds(1.0) == pytest.approx(0.09, rel=0.2)
    assert costs.forced_seconds == pytest.approx(0.01, rel=0.3)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9), st.integers(0, 9)), max_size=40))
def test_a_price_is_never_negative(seen):
    line = Line(0.1, 0.1, 0.1)
    for seconds, first, second in seen:
        line.saw(seconds, 1, first, second)
    assert line.seconds(1, 0, 0) >= 0 and line.seconds(0, 1, 0) >= 0 and line.seconds(0, 0, 1) >= 0


def _draft(confidence: float, count: int = 3, source: str = "x") -> Proposal:
    return Proposal(tuple(range(count)), (source,) * count, (confidence,) * count)


def test_odds_follow_what_is_accepted():
    """Confidences of 0.9 that hold a third of the time, and in another sequence always."""
    acceptance, draw = Acceptance(), random.Random(3)
    for _ in range(400):
        came = [0 if draw.random() < 1 / 3 else 9]
        acceptance.saw(1, _draft(0.9, 1), False, came, tested=1)
        acceptance.saw(2, _draft(0.9, 1), False, [0], tested=1)
    (first,) = acceptance.confidence(1, _draft(0.9, 1), False)
    (second,) = acceptance.confidence(2, _draft(0.9, 1), False)
    assert first == pytest.approx(1 / 3, abs=0.17)
    assert second > 0.93


def test_a_draft_that_is_not_verified_teaches_by_its_first_tokens():
    acceptance = Acceptance()
    for _ in range(30):
        acceptance.saw(1, _draft(0.9), False, [7], tested=0)
    (chance, *_) = acceptance.confidence(1, _draft(0.9), False)
    assert chance < 0.3
    assert all(bin.count == 0 for bin in acceptance.bins), "only what was verified is counted"


def test_grammars_have_odds_of_their_own_and_forced_tokens_stay_certain():
    acceptance = Acceptance()
    for number in range(200):
        acceptance.saw(number, _draft(0.5, 1), True, [0], tested=1)
        acceptance.close(number)
    (masked,) = acceptance.confidence(999, _draft(0.5, 1), True)
    (free,) = acceptance.confidence(999, _draft(0.5, 1), False)
    assert masked > 0.75 and free == pytest.approx(0.5)
    forced = Proposal((1, 2), ("x", FORCED), (0.5, 1.0))
    assert acceptance.confidence(999, forced, True)[1] == 1.0


def test_calibration_is_counted():
    acceptance = Acceptance()
    acceptance.saw(1, _draft(0.65, 1), False, [0], tested=1)
    assert (acceptance.bins[6].count, acceptance.bins[6].accepted) == (1, 1)
    assert acceptance.bins[6].predicted == pytest.approx(0.65)


def _asks(gate: Gate, steps: int, profit_s: float, cost_s: float, plain_s: float = 1.0) -> int:
    asked = 0
    for _ in range(steps):
        due = gate.account(1, "x").due
        gate.account(1, "x").waited()
        if due:
            asked += 1
            gate.booked(1, "x", tokens=0.0, profit_s=profit_s, cost_s=cost_s, plain_s=plain_s)
    return asked


@pytest.mark.parametrize("cost_s", [0.001, 0.05, 0.5, 2.0])
def test_asking_in_vain_costs_a_bounded_share(cost_s: float):
    """A chat that never accepts: but for the first few asks, half a percent of plain decoding."""
    gate = Gate()
    begin = _asks(gate, 300, -cost_s, cost_s)
    later = _asks(gate, 2000, -cost_s, cost_s)
    assert begin * cost_s <= 300 * PROBING_SHARE + 10 * cost_s
    assert later * cost_s <= 2000 * PROBING_SHARE * 1.1 + cost_s
    assert later >= 2000 // 513, "it is asked again and again"


def test_a_source_that_pays_is_asked_every_step_again():
    gate = Gate()
    _asks(gate, 500, -0.5, 0.5)
    assert _asks(gate, 300, 5.0, 0.5) >= 230
    assert _asks(gate, 100, 5.0, 0.5) == 100
    gate.close(1)
    assert gate.account(1, "x").expected is None


def test_rules_of_rivals():
    rules = {name: Mode(name, 16, CURVE) for name in ("off", "k3", "switch60", "table")}
    assert [rules["off"].width(n, 8) for n in (1, 16)] == [0, 0]
    assert [rules["k3"].width(n, 8) for n in (1, 16)] == [3, 3]
    assert rules["k3"].width(1, 2) == 2
    assert [rules["switch60"].width(n, 8) for n in (9, 10)] == [5, 0]
    widths = [rules["table"].width(n, 8) for n in (1, 2, 4, 8, 16, 32)]
    assert widths == sorted(widths, reverse=True) and widths[0] > 0
    for wrong in ("k0", "k100", "k", "on", ""):
        with pytest.raises(UnknownMode):
            Mode(wrong, 16, CURVE)


def test_the_tables_width_is_the_best_by_its_own_assumption():
    speeds = [
        sum(0.6**k for k in range(width + 1)) / CURVE.seconds(2 * (1 + width)) for width in range(9)
    ]
    assert best_width(CURVE, 2, 0.6, 8) == speeds.index(max(speeds))


def test_goals():
    assert [Policy(g).counts_prompts for g in ("latency", "throughput", "auto")] == [
        True,
        False,
        False,
    ]
    assert Policy().weight(0, None) > Policy().weight(-1, None)
    slo = Policy("slo", 0.05)
    late, fine, early = (slo.weight(0, s) for s in (0.06, 0.04, 0.02))
    assert late > fine > early and slo.weight(-1, 0.06) == Policy().weight(-1, None)
