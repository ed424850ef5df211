"""What is learned, against figures worked out by hand or drawn from known distributions."""

from __future__ import annotations

import random

import pytest

from agentspec.routing.estimate import Estimator, Tariff, Work
from agentspec.routing.faded import PULL, Ratio, Tree
from agentspec.routing.line import Line, within
from agentspec.routing.outcome import Outcome, Target
from agentspec.routing.taskclass import TaskClass

TARGET = Target(2.0, 0.05)
TOOL, CHAT = TaskClass("tool", "codex"), TaskClass("chat", "codex")


def test_a_mean_forgets_by_half_in_a_half_life():
    tree = Tree(0.0, 1.0, half_life=10.0)
    for tick in range(400):
        tree.add(((),), 1.0, tick)
    for tick in range(400, 410):
        tree.add(((),), 3.0, tick)
    assert tree.at(((),), 410).mean == pytest.approx(2.0, abs=0.1)


def test_the_special_is_drawn_to_the_general():
    tree = Tree(0.0, 1.0, half_life=1e6)
    for tick in range(100):
        tree.add(((),), 10.0, tick)
    tree.add((("a",),), 20.0, 101)
    found = tree.at(((), ("a",)), 101).mean
    general = tree.at(((),), 101).mean
    assert found == pytest.approx((20.0 + PULL * general) / (1 + PULL))
    assert tree.at(((), ("b",)), 101).mean == general


def test_what_was_not_measured_for_long_is_believed_with_more_doubt():
    tree = Tree(0.0, 1.0, half_life=50.0)
    rng = random.Random(1)
    for tick in range(100):
        tree.add(((),), rng.gauss(5.0, 1.0), tick)
    now, later = tree.at(((),), 100), tree.at(((),), 3000)
    assert now.mean == later.mean and later.doubt > 5 * now.doubt


def test_a_line_finds_what_made_the_measurements():
    rng = random.Random(2)
    line = Line((1.0, 1.0), (1.0, 5.0), (0.5, 0.5), half_life=1000.0)
    for tick in range(600):
        x = rng.uniform(0, 20)
        line.add((1.0, x), (0.4 + 0.07 * x) * rng.lognormvariate(0, 0.1), tick)
    for x in (0.0, 5.0, 20.0):
        assert line.at((1.0, x)) == pytest.approx(0.4 + 0.07 * x, rel=0.05)


def test_a_line_follows_a_change_and_never_goes_below_nothing():
    line = Line((1.0, 1.0), (1.0, 5.0), (0.5, 0.5), half_life=20.0)
    rng = random.Random(3)
    for tick in range(300):
        x = rng.uniform(1, 10)
        line.add((1.0, x), 1.0 if tick < 150 else 3.0, tick)
    assert line.at((1.0, 5.0)) == pytest.approx(3.0, rel=0.05)
    falling = Line((1.0, 1.0), (1.0, 5.0), (0.5, 0.5), half_life=100.0)
    for tick in range(100):
        falling.add((1.0, float(tick % 10)), 10.0 - tick % 10, tick)
    assert falling.at((1.0, 1000.0)) > 0


def test_the_chance_to_stay_within_a_limit():
    rng = random.Random(4)
    drawn = [rng.lognormvariate(0.0, 0.5) for _ in range(20_000)]
    for limit in (0.5, 1.0, 2.0):
        share = sum(value <= limit for value in drawn) / len(drawn)
        assert within(limit, 1.0, 0.25) == pytest.approx(share, abs=0.01)


def test_a_ratio_is_of_sums_and_of_the_most_special_key():
    ratio = Ratio(half_life=1e6)
    ratio.add(("b",), 10.0, 1.0)
    ratio.add(("b",), 10.0, 9.0)
    assert ratio.at(("b",), ("b", "tool")) == pytest.approx(2.0, rel=1e-3)
    assert ratio.at(("other",)) is None


def outcome(backend: str, task: TaskClass = TOOL, **more: object) -> Outcome:
    fields = {"in_tok": 1000, "out_tok": 101, "ttft_s": 0.5, "token_s": 0.02, "load": 4.0}
    return Outcome(backend, task, **(fields | more))  # type: ignore[arg-type]


def test_acceptance_by_class_becomes_seconds_a_token():
    """One engine, 60 ms a step: tool calls get five tokens of a step, chat two."""
    estimator = Estimator(50.0, TARGET)
    for _ in range(200):
        for task, length in ((TOOL, 5), (CHAT, 2)):
            steps = 100 // length
            estimator.learn(
                outcome("b", task, steps=steps, accepted=100 - steps, token_s=0.06 / length)
            )
    tool = estimator.predict("b", Work(TOOL, 1000, 0, 4.0))
    chat = estimator.predict("b", Work(CHAT, 1000, 0, 4.0))
    assert tool.accepted_length == pytest.approx(5.0, rel=0.05)
    assert tool.token_s == pytest.approx(0.012, rel=0.1)
    assert chat.token_s == pytest.approx(0.030, rel=0.1)
    # A class never seen there gets what all have in common.
    other = estimator.predict("b", Work(TaskClass("edit"), 1000, 0, 4.0))
    assert tool.token_s < other.token_s < chat.token_s


def test_a_cached_prompt_is_faster_and_cheaper():
    estimator = Estimator(50.0, TARGET)
    rng = random.Random(5)
    for _ in range(300):
        in_tok, cached = 50_000, rng.choice((0, 45_000))
        fresh = in_tok - cached
        estimator.learn(
            outcome(
                "b",
                in_tok=in_tok,
                cached_tok=cached,
                ttft_s=0.2 + fresh / 10_000,
                fresh_nusd=fresh * 3000,
                cached_nusd=cached * 300,
                out_nusd=101 * 15_000,
            )
        )
    cold = estimator.predict("b", Work(TOOL, 50_000, 0, 4.0))
    warm = estimator.predict("b", Work(TOOL, 50_000, 45_000, 4.0))
    assert cold.ttft_s == pytest.approx(5.2, rel=0.1) and warm.ttft_s == pytest.approx(0.7, rel=0.2)
    assert cold.cost_nusd == pytest.approx(50_000 * 3000 + 101 * 15_000, rel=0.02)
    assert warm.cost_nusd == pytest.approx(5_000 * 3000 + 45_000 * 300 + 101 * 15_000, rel=0.02)
    assert warm.met > 0.9 > 0.1 > cold.met


def test_listed_prices_go_first_and_no_price_is_no_price():
    listed = Estimator(50.0, TARGET, tariff=lambda *_: Tariff(1.0, 0.5, 2.0))
    listed.learn(outcome("b", fresh_nusd=10**9, cached_nusd=0, out_nusd=10**9))
    found = listed.predict("b", Work(TOOL, 1000, 400, 0.0, most_out_tok=10))
    assert found.cost_nusd == pytest.approx(600 * 1.0 + 400 * 0.5 + 10 * 2.0)
    assert Estimator(50.0, TARGET).predict("b", Work(TOOL, 1000, 0, 0.0)).cost_nusd is None


def test_failures_count_where_they_are_the_backends():
    def met(outcomes: list[Outcome]) -> float:
        estimator = Estimator(50.0, TARGET)
        for one in outcomes:
            estimator.learn(one)
        return estimator.predict("b", Work(TOOL, 1000, 0, 4.0)).met

    fine = [outcome("b") for _ in range(40)]
    failed = [Outcome("b", TOOL, status="error") for _ in range(40)]
    assert met(fine) > 0.9 and met(fine + failed) < 0.6
    assert met(fine + [Outcome("b", TOOL, status="error", blame=False)] * 40) == met(fine)
    assert met(fine + [Outcome("b", TOOL, status="cancelled")] * 40) == met(fine)
    assert met(fine + [outcome("other", failed=("b",)) for _ in range(40)]) < 0.6
    wrong = [outcome("b", calls=1, calls_valid=0) for _ in range(40)]
    assert met(fine + wrong) < 0.6


def test_an_answer_in_one_piece_tells_its_speed_too():
    estimator = Estimator(50.0, TARGET)
    for _ in range(200):
        estimator.learn(outcome("b", ttft_s=None, token_s=None, e2e_s=10.0))
    assert estimator.predict("b", Work(TOOL, 1000, 0, 4.0)).e2e_s == pytest.approx(10.0, rel=0.15)


def test_equal_engines_are_measured_together():
    estimator = Estimator(50.0, TARGET, fleets={"a": "f", "b": "f"})
    for _ in range(100):
        estimator.learn(outcome("a", ttft_s=1.5))
    assert estimator.predict("b", Work(TOOL, 1000, 0, 4.0)).ttft_s == pytest.approx(1.5, rel=0.1)
