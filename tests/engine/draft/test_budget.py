"""Widths against brute force over all of them, and what no choice of widths may do."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.budget import Bid, choose, choose_widths, gains, rows_paid, survivals
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


def test_what_forced_tokens_bring():
    """Against the definition: model-decided tokens of a pass that verifies the first n tokens."""
    sources = ("x", FORCED, FORCED, "x", "x", FORCED)
    alive = survivals([0.5, 1.0, 1.0, 0.8, 0.25, 1.0])

    def decided(count: int) -> float:
        drafted = sum(s for s, source in zip(alive[:count], sources, strict=False) if source == "x")
        # All that was verified stands: then the pass's own token counts, unless it is forced.
        ends = alive[count - 1] if count else 1.0
        lost = count < len(sources) and sources[count] == FORCED
        return 1.0 + drafted - (ends if lost else 0.0)

    brought = gains(sources, alive)
    for count in range(len(sources) + 1):
        assert 1.0 + sum(brought[:count]) == pytest.approx(decided(count))


def test_forced_tokens_cost_their_rows_and_pay_by_what_lies_behind():
    curve = CostCurve.of([1, 2, 3, 4], [1.0, 1.1, 1.2, 1.3])
    forced = Proposal((1, 2, 3), ("x", FORCED, FORCED), (0.5, 1.0, 1.0))
    doubtful = Proposal((1, 2, 3), ("x", FORCED, FORCED), (0.25, 1.0, 1.0))
    assert choose_widths([forced], 1, curve) == [3]
    assert choose_widths([doubtful], 1, curve) == [0]


OWN = st.lists(st.floats(0.0, 0.3), min_size=1, max_size=4)


@given(
    BATCHES,
    st.lists(OWN, min_size=3, max_size=3),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=3, max_size=3),
    CURVES,
)
def test_costs_and_weights_of_their_own(batch, own, weights, curve):
    """Nearly the best there is where rows cost each sequence something of its own: what is joined
    to reach a cheap row behind a dear one may be cut in a better place, rarely and by little."""
    bids = [
        Bid(gain=survivals(c), own_s=own_s, weight=weight)
        for c, own_s, weight in zip(batch, own, weights, strict=False)
    ]

    def speed(widths) -> float:
        tokens = sum(
            bid.weight * (1 + sum(bid.gain[:w])) for bid, w in zip(bids, widths, strict=True)
        )
        spent = sum(
            bid.own_s[min(i, len(bid.own_s) - 1)]
            for bid, w in zip(bids, widths, strict=True)
            for i in range(w)
        )
        return tokens / (curve.seconds(len(bids) + sum(widths)) + 0.5 + spent)

    chosen = choose(bids, len(bids), curve.seconds, 0.5)
    choices = itertools.product(*(range(len(c) + 1) for c in batch))
    best = max(speed(choice) for choice in choices)
    assert speed(chosen) >= speed([0] * len(bids))
    assert speed(chosen) >= 0.93 * best


def test_equal_survivals_are_taken_in_order():
    curve = CostCurve.of([1, 2, 3, 4, 5], [1.0, 1.0, 1.0, 1.0, 100.0])
    assert choose_widths([_one_hot([1.0] * 4), _one_hot([1.0] * 4)], 2, curve) == [1, 1]


def test_no_proposals_no_widths():
    curve = CostCurve.of([1], [1.0])
    assert choose_widths([], 0, curve) == []
    assert choose_widths([Proposal()], 1, curve) == [0]


def test_what_the_rows_of_a_span_cost():
    sources = ("x", FORCED, "x", FORCED)
    assert rows_paid(sources, [0.5, 0.5, 0.25, 0.25]) == [1.0, 0.5, 1.0, 0.75]
    assert rows_paid(("x", "x"), [0.5, 0.25]) is None


def test_rows_that_are_paid_for_carry_a_span():
    """A span of three costs more than its token brings, but most of it would be computed anyway."""
    curve = CostCurve.of([1, 2, 3, 4, 5], [1.0, 1.1, 1.2, 1.3, 1.4])
    brought = gains(("x", FORCED, FORCED, FORCED), [0.3] * 4)
    assert choose([Bid(gain=brought)], 1, curve.seconds) == [0]
    refunded = (0.0, -0.03, -0.03, -0.03)
    assert choose([Bid(gain=brought, own_s=refunded)], 1, curve.seconds) == [0]
    assert choose([Bid(gain=brought, own_s=(0.0, -0.06, -0.06, -0.06))], 1, curve.seconds) == [4]
