"""Widths against brute force over all of them, and what no choice of widths may do."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.budget import choose_widths
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import FORCED, Proposal

CONFIDENCES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.8, 0.9, 1.0]), max_size=4)
BATCHES = st.lists(CONFIDENCES, min_size=1, max_size=3)
CURVES = st.lists(st.floats(0.0, 1.0), min_size=16, max_size=16).map(
    lambda steps: CostCurve.of(range(1, 17), [1.0 + t for t in itertools.accumulate(steps)])
)


def _one_hot(confidence: list[float]) -> Proposal:
    count = len(confidence)
    return Proposal((0,) * count, ("x",) * count, tuple(confidence))


def _dense(confidence: list[float]) -> Proposal:
    count = len(confidence)
    return Proposal((0,) * count, ("x",) * count, tuple(confidence), torch.zeros(count, 2))


def _speed(batch: list[list[float]], widths, base_rows: int, curve: CostCurve) -> float:
    """Expected tokens a second, from the definition."""
    tokens = float(len(batch))
    for confidence, width in zip(batch, widths, strict=True):
        tokens += sum(math.prod(confidence[: k + 1]) for k in range(width))
    return tokens / curve.seconds(base_rows + sum(widths))


@given(BATCHES, st.integers(1, 4), CURVES)
def test_one_hot_widths_are_the_best_there_are(batch, base_rows, curve):
    widths = choose_widths([_one_hot(c) for c in batch], base_rows, curve)
    choices = itertools.product(*(range(len(c) + 1) for c in batch))
    best = max(_speed(batch, choice, base_rows, curve) for choice in choices)
    assert _speed(batch, widths, base_rows, curve) == pytest.approx(best, rel=1e-12)


@given(BATCHES, st.lists(st.booleans(), min_size=3, max_size=3), st.integers(1, 4), CURVES)
def test_never_below_plain_decoding(batch, dense, base_rows, curve):
    proposals = [_dense(c) if d else _one_hot(c) for c, d in zip(batch, dense, strict=False)]
    widths = choose_widths(proposals, base_rows, curve)
    assert all(0 <= width <= len(c) for width, c in zip(widths, batch, strict=True))
    plain = _speed(batch, [0] * len(batch), base_rows, curve)
    assert _speed(batch, widths, base_rows, curve) >= plain


@given(BATCHES, CONFIDENCES, st.integers(0, 3), CURVES, st.booleans())
def test_dense_widths_do_not_look_ahead(batch, other, kept, curve, mixed):
    """Whether token k of a sampled draft is verified does not depend on confidences after k's:
    they know token k."""
    rest = [_one_hot(c) if mixed else _dense(c) for c in batch[1:]]
    changed = [*batch[0][:kept], *other]
    first = choose_widths([_dense(batch[0]), *rest], len(batch), curve)
    second = choose_widths([_dense(changed), *rest], len(batch), curve)
    seen = min(kept, len(batch[0]), len(changed))
    assert min(first[0], seen) == min(second[0], seen)


@given(BATCHES, CURVES)
def test_dense_drafts_do_not_move_one_hot_widths(batch, curve):
    one_hot = [_one_hot(c) for c in batch]
    with_dense = choose_widths([*one_hot, _dense([0.9] * 4)], len(batch) + 1, curve)
    silent = choose_widths([*one_hot, _dense([])], len(batch) + 1, curve)
    assert with_dense[:-1] == silent[:-1]


def test_forced_tokens_cost_a_row_and_keep_the_survival():
    forced = Proposal((1, 2, 3), ("x", FORCED, FORCED), (0.5, 1.0, 1.0))
    drafted = Proposal((1, 2, 3), ("x", "x", "x"), (0.5, 0.5, 0.5))
    curve = CostCurve.of([1, 2, 3, 4], [1.0, 1.4, 1.6, 1.8])
    assert choose_widths([forced], 1, curve) == [3]
    assert choose_widths([drafted], 1, curve) == [2]


def test_equal_survivals_are_taken_in_order():
    curve = CostCurve.of([1, 2, 3, 4, 5], [1.0, 1.0, 1.0, 1.0, 100.0])
    assert choose_widths([_one_hot([1.0] * 4), _one_hot([1.0] * 4)], 2, curve) == [1, 1]


def test_no_proposals_no_widths():
    curve = CostCurve.of([1], [1.0])
    assert choose_widths([], 0, curve) == []
    assert choose_widths([Proposal()], 1, curve) == [0]
