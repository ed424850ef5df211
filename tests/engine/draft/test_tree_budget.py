"""What a tree's tokens are worth: by path, beside chains in one budget, and learnt from all kin."""

from __future__ import annotations

import pytest

from agentspec.engine.acceptance import Acceptance
from agentspec.engine.budget import choose_widths, gains, survivals
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import FORCED, Proposal

TREE = Proposal(
    (1, 2, 3, 4, 5),
    ("t",) * 5,
    (0.5, 0.9, 0.4, 0.8, 0.1),
    None,
    (-1, 0, -1, 1, 2),
)
"""Survivals 0.5, 0.45, 0.4, 0.36, 0.04."""


def test_survival_goes_by_path_and_never_rises():
    assert survivals(TREE.confidence, TREE.parents) == pytest.approx(TREE.survival())
    assert survivals([0.5, 0.5, 0.9], (-1, 0, -1)) == [0.5, 0.25, 0.25]
    assert survivals([0.5, 0.5, 0.9]) == pytest.approx([0.5, 0.25, 0.225])


def test_a_forced_span_brings_its_gain_with_its_last_token_on_each_path():
    sources = ("t", FORCED, FORCED, "t", FORCED)
    above = (-1, 0, 1, -1, 3)
    assert gains(sources, [0.5, 0.5, 0.5, 0.3, 0.3], above) == [0.0, 0.0, 0.5, 0.0, 0.3]
    assert gains((FORCED, "t"), [1.0, 0.7], (-1, 0)) == [0.0, 0.7]


CURVES = {
    "gentle": CostCurve.of([1, 2, 9], [1.0, 1.2, 2.6]),
    "flat": CostCurve.of([1, 12], [1.0, 1.1]),
    "a step": CostCurve.of([1, 4, 5, 12], [1.0, 1.1, 2.2, 2.3]),
}


@pytest.mark.parametrize("name", CURVES)
def test_trees_and_chains_compete_token_by_token(name: str):
    """The widths are the best of all, looked for one by one."""
    chain = Proposal((7, 8, 9), ("c",) * 3, (0.95, 0.95, 0.5))
    curve = CURVES[name]

    def speed(tree: int, straight: int) -> float:
        tokens = sum(TREE.survival()[:tree]) + sum(chain.survival()[:straight])
        return (2 + tokens) / curve.seconds(2 + tree + straight)

    best = max(((t, c) for t in range(6) for c in range(4)), key=lambda widths: speed(*widths))
    assert tuple(choose_widths([TREE, chain], 2, curve)) == best


def test_every_sibling_that_was_passed_teaches():
    learnt = Acceptance()
    for _ in range(50):
        learnt.saw(1, TREE, False, [3, 9], tested=5)
    fresh = Acceptance().confidence(1, TREE, False)
    assert sum(bin.count for bin in learnt.bins) == 250, "every token that was verified"
    assert sum(bin.accepted for bin in learnt.bins) == 50
    assert learnt.confidence(1, TREE, False) != fresh


def test_what_was_cut_off_is_not_counted_as_tested():
    learnt = Acceptance()
    learnt.saw(1, TREE, False, [3, 5], tested=2)
    assert sum(bin.count for bin in learnt.bins) == 2
