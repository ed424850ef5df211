"""Percentiles against the definition, the loop detector against texts known to loop."""

from __future__ import annotations

import random
import statistics

import pytest

from agentspec.bench.stats import looping, percentile, spread


def test_percentile_is_the_inclusive_one():
    values = [random.Random(3).random() for _ in range(101)]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert [percentile(values, p) for p in range(1, 100)] == pytest.approx(cuts)
    assert (percentile(values, 0), percentile(values, 100)) == (min(values), max(values))


def test_spread():
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert spread([]) is None


@pytest.mark.parametrize("period", [1, 2, 7, 8, 30, 64])
def test_a_loop_is_found_wherever_it_stands(period: int):
    rng = random.Random(period)
    block = rng.sample(range(1000, 2000), period)
    repeats = max(4, -(-24 // period))
    text = [*range(50), *(block * repeats), *range(200, 230)]
    assert looping(text)


@pytest.mark.parametrize("period", [1, 2, 8, 30])
def test_three_repeats_are_no_loop(period: int):
    block = list(range(1000, 1000 + period))
    assert not looping([*range(50), *(block * 3), *range(200, 230)])


def test_text_without_repetition_is_no_loop():
    assert not looping(random.Random(0).choices(range(5000), k=400))
    assert not looping([])
    assert not looping([7] * 20)
