"""Lists and arrays rank alike, to the bit."""

from __future__ import annotations

import itertools
from operator import ge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine import ranking
from agentspec.engine.budget import Bid, choose
from agentspec.engine.cost import CostCurve
from agentspec.engine.ranking import Arrays, Lists, Offered, falling

SHARE = st.floats(0.0, 1.0)
TOKENS = st.lists(st.tuples(st.one_of(SHARE, st.sampled_from([0.25, 0.5])), SHARE), max_size=6)
PASSES = st.lists(st.floats(0.0, 0.3), min_size=40, max_size=40).map(
    lambda steps: [1.0 + t for t in itertools.accumulate(steps)]
)


@given(st.lists(TOKENS, max_size=6), PASSES, st.floats(0.01, 4.0), st.floats(0.0, 1.0))
def test_both_find_the_same_prefix(bids, pass_s, price, other_s):
    offers = [Offered([gain for gain, _ in bid], [cost for _, cost in bid]) for bid in bids]
    found = []
    for kind in (Lists, Arrays):
        speed, taken = kind(offers, pass_s).best(price, float(len(bids) + 1), other_s)
        found.append((speed, None if taken is None else taken()))
    assert found[0] == found[1]


@given(st.lists(st.floats(-1.0, 1.0), max_size=12))
def test_ranks_fall_and_lose_nothing(ranks):
    found = falling(ranks)
    assert len(found) == len(ranks)
    assert all(map(ge, [rank + 1e-9 for rank in found], found[1:]))
    assert sum(found) == pytest.approx(sum(ranks), abs=1e-9)


@pytest.mark.parametrize("many", [0, 10**9])
def test_thirty_two_sequences_are_decided_alike(many: int, monkeypatch: pytest.MonkeyPatch):
    curve = CostCurve.of([32, 40, 64, 200], [1.0, 1.1, 1.9, 6.0])
    bids = [
        Bid(
            gain=[(0.5 + n / 70) ** k for k in range(1, 6)],
            own_s=[0.001 * (n % 3)],
            weight=1.0 + n % 2,
        )
        for n in range(32)
    ]
    usual = choose(bids, 32, curve.seconds, 0.1, margin=0.02)
    monkeypatch.setattr(ranking, "MANY", many)
    assert choose(bids, 32, curve.seconds, 0.1, margin=0.02) == usual
    assert 0 < sum(usual) < 160
