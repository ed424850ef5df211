"""Estimates of what was not done, against a world in which it can be tried."""

from __future__ import annotations

import random

import pytest

from agentspec.routing.offpolicy import Logged, judge

LOSS = {"a": 1.0, "b": 2.0, "c": 0.5}


def log(count: int, wrong: float = 0.0, seed: int = 1) -> list[Logged]:
    """A policy that takes a, b, c with chances that depend on the request; losses with noise.
    wrong: by how much the model's predictions are off."""
    rng, rows = random.Random(seed), []
    for i in range(count):
        heavy = rng.random() < 0.5
        chances = {"a": 0.6, "b": 0.3, "c": 0.1} if heavy else {"a": 0.2, "b": 0.3, "c": 0.5}
        chosen = rng.choices(list(chances), list(chances.values()))[0]
        scale = 2.0 if heavy else 1.0
        loss = scale * LOSS[chosen] * rng.lognormvariate(-0.02, 0.2)
        rows.append(
            Logged(
                session=f"s{i // 5}",
                chosen=chosen,
                chance=chances[chosen],
                loss=loss,
                wanted={"a": 0.0, "b": 0.0, "c": 1.0},
                predicted={b: scale * value + wrong for b, value in LOSS.items()},
                seen=frozenset(chances),
            )
        )
    return rows


TRUTH = 1.5 * LOSS["c"]  # half of the requests cost twice


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_each_estimate_finds_the_truth(wrong):
    rows = log(20_000, wrong)
    assert sum(row.loss for row in rows) / len(rows) > TRUTH * 1.5  # what was done is far from it
    judged = judge(rows, seed=0, rounds=1)
    for value in (judged.ips, judged.snips, judged.dr):
        assert value.mean == pytest.approx(TRUTH, rel=0.03)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    held = 0
    for seed in range(40):
        found = judge(log(150, 0.2, seed), seed=seed, rounds=60).dr
        held += found.low <= TRUTH <= found.high
    assert 33 <= held <= 40


def test_a_good_model_makes_the_interval_small():
    judged = judge(log(600), seed=0)
    assert judged.dr.high - judged.dr.low < 0.3 * (judged.ips.high - judged.ips.low)
    assert judged.support == 1.0 and 0 < judged.effective < judged.requests == 600


def test_what_was_never_done_has_no_support():
    rows = [
        Logged("s", "a", 1.0, 1.0, {"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 3.0}, frozenset({"a"}))
    ] * 10
    judged = judge(rows, seed=0)
    assert judged.support == 0.0 and judged.effective == 0.0
    assert judged.dr.mean == 3.0  # the model's word, and nothing else
    with pytest.raises(ValueError, match="empty"):
        judge([], seed=0)
