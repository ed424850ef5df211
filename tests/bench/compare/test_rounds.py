"""What rounds are made into, against hand counts."""

from __future__ import annotations

import pytest

from agentspec.bench.compare.rounds import Round, by_position, calibration, sweep, widths
from agentspec.engine.draft.base import Proposal


def made(width: int, accepted: int, confidence: tuple[float, ...] = ()) -> Round:
    return Round(width, width, accepted, confidence)


def test_forced_tokens_are_left_out():
    proposal = Proposal((5, 6, 7, 8), ("d", "forced", "d", "d"), (0.9, 1.0, 0.8, 0.7))
    found = Round.of(proposal, [5, 6, 7, 1], accepted=3)
    assert found == Round(3, 3, 2, (0.9, 0.8, 0.7))
    assert Round.of(proposal, [5, 1], accepted=1).accepted == 1


def test_a_tree_counts_along_the_path_that_stands():
    proposal = Proposal((5, 6, 7), ("d",) * 3, (0.9, 0.5, 0.4), parents=(-1, 0, 0))
    assert Round.of(proposal, [5, 7, 2], accepted=2) == Round(3, 2, 2)


def test_by_position():
    rounds = [made(3, 3), made(3, 1), made(2, 0), made(1, 1)]
    first, second, third = by_position(rounds)
    assert first == {"position": 1, "rounds": 4, "survival": 3 / 4, "given_before": 3 / 4}
    assert second == {"position": 2, "rounds": 3, "survival": 1 / 3, "given_before": 1 / 2}
    assert third == {"position": 3, "rounds": 2, "survival": 1 / 2, "given_before": 1.0}
    assert by_position([]) == []


def test_widths_hold_the_verifications_without_drafts():
    assert widths([made(3, 1), made(3, 0), made(1, 1)], steps=5) == {0: 2, 1: 1, 3: 2}


def test_the_sweep_cuts_before_the_first_token_below():
    rounds = [made(3, 2, (0.95, 0.6, 0.9)), made(2, 0, (0.3, 0.9))]
    at = {one["threshold"]: one for one in sweep(rounds)}
    assert at[0.0] == {"threshold": 0.0, "share": 2 / 5, "width": 2.5, "accepted_length": 2.0}
    assert at[0.5] == {"threshold": 0.5, "share": 2 / 3, "width": 1.5, "accepted_length": 2.0}
    assert at[0.7] == {"threshold": 0.7, "share": 1.0, "width": 0.5, "accepted_length": 1.5}
    assert sweep([made(3, 1)]) == []


def test_calibration_error():
    """Place 1: ten rounds said .9, seven stood. Place 3: .9 * .9 * .5 = .405, none of two stood."""
    short = [made(1, i < 7, (0.9,)) for i in range(8)]
    longer = [made(3, 0, (0.9, 0.9, 0.5)), made(3, 0, (0.9, 0.9, 0.5))]
    found = calibration([*short, *longer], (1, 3, 5))
    assert found == {1: pytest.approx(0.2), 3: pytest.approx(0.405)}
