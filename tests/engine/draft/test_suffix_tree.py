"""The suffix drafter's trees: what followed in several ways is drafted in several ways."""

from __future__ import annotations

import pytest

from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.engine.draft.suffix import SuffixDrafter
from agentspec.engine.draft.tree import grow
from agentspec.engine.sampling import SamplingParams
from tests.engine.core.reference import Reference
from tests.engine.core.world import MODEL, PROMPT, World, check_told, make
from tests.engine.draft.toyworld import numbers

TWO_WAYS = [1, 2, 3, 4, 9, 1, 2, 5, 6, 8, 1, 2, 3, 4, 7, 1, 2]
"""After 1 2: twice 3 4, once 5 6."""


def view(tokens: list[int]) -> DraftView:
    return DraftView(1, "a", "s", list(tokens), len(tokens), SamplingParams())


def opened(tokens: list[int], **options) -> tuple[SuffixDrafter, DraftView]:
    drafter, seen = SuffixDrafter(**{"min_survival": 0.0, **options}), view(tokens)
    drafter.open(seen)
    return drafter, seen


def test_both_continuations_are_drafted_the_frequent_one_first():
    drafter, seen = opened(TWO_WAYS, branches=2)
    proposal = drafter.propose([seen], [8])[0]
    assert proposal.tokens[0] == 3 and proposal.parents is not None
    assert [proposal.tokens[n] for n in proposal.below(-1)] == [3, 5]
    assert proposal.follow([3, 4]) and len(proposal.follow([5, 6, 8])) == 3
    for node in range(-1, len(proposal)):
        assert sum(proposal.confidence[n] for n in proposal.below(node)) <= 1.0


@pytest.mark.parametrize("seed", range(6))
def test_one_branch_is_the_chain_of_the_best_ways(seed: int):
    """The quick loop and the tree's own growth agree where there is one way on."""
    text = [int(4 * x) for x in numbers(80, "tree", seed)]
    drafter, seen = opened(text, min_survival=0.1)
    chain = drafter.propose([seen], [6])[0]
    place = drafter._texts[1].match()
    assert grow("suffix", place, drafter._ways, 6, 0.1) == chain


def test_a_tree_learns_from_each_way_that_was_tested():
    drafter, seen = opened(TWO_WAYS, branches=2)
    before = drafter.propose([seen], [6])[0]
    tokens = [5, 6]
    seen.tokens.extend(tokens)
    drafter.commit(seen, before, 2, 2)
    tried = sum(drafter._calibration._tried.values())
    assert tried == 3, "3 and 5 at the first place, 6 at the second"
    assert sum(drafter._calibration._accepted.values()) == 2


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_with_branches_is_the_references(temperature: float):
    world = World()
    requests = [
        make(
            f"r{i}",
            PROMPT * 2 + [i],
            sources=("suffix_tree",),
            sampling=SamplingParams(temperature=temperature, seed=4),
            max_tokens=30,
        )
        for i in range(4)
    ]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())


def test_it_drafts_behind_another_sources_tokens():
    drafter, seen = opened([1, 2, 3, 4, 5, 6, 7, 8, 9, 50])
    head = Proposal((3, 4), ("model",) * 2, (0.9, 0.9))
    assert drafter.propose_behind([seen], [head], [3])[0].tokens == (5, 6, 7)
    stranger = Proposal((60, 61), ("model",) * 2, (0.9, 0.9))
    assert not len(drafter.propose_behind([seen], [stranger], [3])[0])
    mixed = Proposal((60, 2, 3), ("model",) * 3, (0.9,) * 3)
    assert drafter.propose_behind([seen], [mixed], [2])[0].tokens == (4, 5)
    whole = Proposal((3, 4, 5), ("model", "model", "suffix"), (0.9,) * 3)
    seen.tokens.extend([3, 4, 5, 6])
    drafter.commit(seen, whole, 3, 4)
    assert drafter.propose([seen], [2])[0].tokens == (7, 8)
