"""Intervals against cases small enough to count by hand, and against the delta method."""

from __future__ import annotations

import math
import random

import pytest

from agentspec.bench.compare.resample import Draws, Estimate
from agentspec.engine.train.evaluate import ratio


def test_two_prompts_have_three_resamples():
    """(2, 0), (1, 1), (0, 2): ratios 4/2, 8/3 and 12/4; the outer ones with a chance of 1/4."""
    found = Draws(2).ratio([2.0, 6.0], [1.0, 2.0])
    assert found is not None
    assert found.value == pytest.approx(8 / 3)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(3.0))


def test_draws_keep_the_number_of_prompts():
    weights = Draws(7, seed=3).weights
    assert weights.shape == (2000, 7)
    assert set(weights.sum(1)) == {7.0}


def test_a_quotient_is_resampled_in_pairs():
    """One method is twice the other on every prompt: no interval, however prompts differ."""
    tops, bottoms = [1.0, 9.0, 4.0, 30.0], [1.0, 2.0, 3.0, 4.0]
    double = [2 * top for top in tops]
    found = Draws(4).quotient((double, bottoms), (tops, bottoms))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    alone = Draws(4).ratio(tops, bottoms)
    assert alone is not None and alone.half is not None and alone.half > 0.2


def test_near_the_delta_method():
    draw = random.Random(5)
    bottoms = [draw.randint(10, 40) for _ in range(300)]
    tops = [b * draw.uniform(1.0, 4.0) for b in bottoms]
    told, found = ratio(tops, bottoms), Draws(300).ratio(tops, bottoms)
    assert found is not None and found.low is not None and found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(told["ci95"], rel=0.1)


def test_one_prompt_has_no_interval_and_none_no_value():
    assert Draws(1).ratio([3.0], [2.0]) == Estimate(1.5, None, None)
    assert Draws(2).ratio([1.0, 1.0], [0.0, 0.0]) is None


def test_prompts_needed_grow_with_the_square():
    """10 % at 8 prompts, 5 % wanted: four times as many."""
    assert Estimate(10.0, 9.0, 11.0).prompts_needed(8) == 32
    assert Estimate(10.0, 9.75, 10.25).half == pytest.approx(0.025)
    assert Estimate(1.0, None, None).prompts_needed(8) is None
    assert math.isclose(Estimate(-2.0, -2.2, -1.8).half or 0.0, 0.1)
