"""Trees of drafts: how they are grown, filtered and cut, and that a biased rule shows."""

from __future__ import annotations

import pytest
import torch

from agentspec.engine import verify as rule
from agentspec.engine.draft.base import FORCED, Proposal
from agentspec.engine.draft.forced import constrain_draft
from agentspec.engine.draft.tree import Branch, block_tree, grow
from agentspec.engine.sampling import Entropy
from agentspec.engine.verify import residual
from tests.engine.draft.test_law import DEPTH, EXACT, GRAMMARS
from tests.engine.draft.toyworld import (
    Dice,
    Grammar,
    Silent,
    Tree,
    World,
    decode,
    distance,
    emitted,
)


def tree(*nodes: tuple[int, int, float], probs: torch.Tensor | None = None) -> Proposal:
    """Of (token, parent, confidence)."""
    tokens, parents, confidence = zip(*nodes, strict=True)
    return Proposal(tokens, ("x",) * len(nodes), confidence, probs, parents)


def test_a_tree_knows_its_paths():
    proposal = tree((5, -1, 0.6), (6, 0, 0.8), (7, -1, 0.4), (5, 2, 1.0), (8, 0, 0.2))
    assert proposal.survival() == pytest.approx([0.6, 0.48, 0.4, 0.4, 0.12])
    assert [proposal.below(node) for node in (-1, 0, 1, 2)] == [[0, 2], [1, 4], [], [3]]
    assert proposal.follow([7, 5, 9]) == [2, 3] and proposal.follow([5, 8]) == [0, 4]
    assert proposal.follow([9]) == proposal.follow([]) == []
    assert proposal.cut(3) == tree((5, -1, 0.6), (6, 0, 0.8), (7, -1, 0.4))
    assert proposal.cut(2).parents is None and proposal.cut(2).tokens == (5, 6)


@pytest.mark.parametrize(
    "nodes", [[(1, -1, 0.5), (2, -1, 0.6)], [(1, 1, 0.5), (2, -1, 0.5)], [(1, 0, 0.5)]]
)
def test_a_tree_out_of_order_is_a_bug(nodes):
    with pytest.raises(AssertionError):
        tree(*nodes)


def test_growing_takes_the_most_probable_nodes_first():
    def branches(path: str) -> list[Branch[str]]:
        return [Branch(0, 0.7, path + "a"), Branch(1, 0.25, path + "b")]

    proposal = grow("x", "", branches, 6)
    assert proposal.survival() == pytest.approx([0.7, 0.49, 0.343, 0.25, 0.2401, 0.175])
    assert proposal.parents == (-1, 0, 1, -1, 2, 0)
    assert proposal.tokens == (0, 0, 0, 1, 0, 1)
    assert grow("x", "", branches, 3).parents is None
    assert len(grow("x", "", branches, 9, min_survival=0.3)) == 3
    assert len(grow("x", "", lambda path: [], 3)) == 0


def test_a_block_becomes_a_tree_of_its_rows_best():
    probs = torch.tensor([[0.1, 0.6, 0.3, 0.0], [0.05, 0.05, 0.0, 0.9]])
    proposal = block_tree("jet", probs, 4, candidates=2)
    assert proposal.tokens == (1, 3, 2, 3) and proposal.parents == (-1, 0, -1, 2)
    assert proposal.survival() == pytest.approx([0.6, 0.54, 0.3, 0.27])
    assert len(block_tree("jet", probs, 99, candidates=9)) == 3 + 3 * 3
    assert block_tree("jet", probs, 2, candidates=2, ids=[9, 8, 7, 6]).tokens == (8, 6)
    chain = block_tree("jet", probs, 9, candidates=1)
    assert chain.tokens == (1, 3) and chain.parents is None


def _legal_pairs(prefix: tuple[int, ...]) -> frozenset[int]:
    return frozenset({0, 1, 2}) if len(prefix) % 2 == 0 else frozenset({(prefix[-1] + 1) % 3})


def test_the_filter_walks_every_path():
    view = World(vocab=3, grammar=Grammar(_legal_pairs)).view()
    proposal = tree((0, -1, 0.6), (1, 0, 1.0), (1, -1, 0.3), (0, 2, 0.5), (2, 2, 0.4))
    kept = constrain_draft(view, proposal, 9)
    assert kept.tokens == (0, 1, 1, 2) and kept.parents == (-1, 0, -1, 2)
    assert view.constraint.prefix == ()
    assert constrain_draft(view, proposal, 2).parents is None


def test_a_dense_tree_keeps_what_is_illegal_and_nothing_below_it():
    view = World(vocab=3, grammar=Grammar(_legal_pairs)).view()
    probs = torch.eye(3)[[0, 0, 1]]
    proposal = tree((0, -1, 0.6), (0, 0, 0.9), (1, 1, 0.9), probs=probs)
    kept = constrain_draft(view, proposal, 9)
    assert kept.tokens == (0, 0) and torch.equal(kept.draft_probs, probs[:2])


def test_forced_spans_stand_on_each_path():
    grammar = Grammar(lambda prefix: frozenset({0, 1, 2}), {(0,): (2, 1), (1,): (0,)})
    view = World(vocab=3, grammar=grammar).view()
    proposal = tree((0, -1, 0.5), (2, 0, 0.5), (1, -1, 0.2), (1, 1, 0.5), (2, 2, 0.5), (0, 3, 0.5))
    kept = constrain_draft(view, proposal, 9)
    assert kept.tokens == (0, 2, 1, 0, 1, 0)
    assert kept.parents == (-1, 0, 1, 2, -1, 4)
    assert [s == FORCED for s in kept.sources] == [False, True, True, False, False, True]
    assert kept.survival() == pytest.approx([0.5, 0.5, 0.5, 0.25, 0.2, 0.2])


def test_stop_tokens_end_their_path_only():
    proposal = tree((0, -1, 0.6), (1, 0, 0.9), (1, -1, 0.3), (2, 2, 0.5))
    kept = constrain_draft(World(vocab=3).view(), proposal, 9, stop_ids={0})
    assert kept.tokens == (0, 1, 2) and kept.parents == (-1, -1, 1)


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_seeded_and_greedy_text_does_not_see_the_tree(grammar: str, temperature: float):
    world = World(vocab=3, temperature=temperature, grammar=GRAMMARS[grammar](3), seed=3)
    for seed in range(10):
        entropy = Entropy.of(seed)
        plain = decode(world, Silent(), entropy, 24)
        assert decode(world, Tree(3), entropy, 24, limit=5) == plain
        drawn = Tree(3, Dice([seed % 3, 0, 1], 1000))
        assert decode(world, drawn, entropy, 24, limit=5) == plain


def _law_under(monkeypatch, pick) -> float:
    monkeypatch.setattr(rule._Target, "pick", pick)
    world = World(vocab=3)
    got = emitted(world, lambda dice: Tree(3, dice), DEPTH)
    return distance(got, world.plain(DEPTH))


def test_the_enumeration_sees_a_sibling_tested_against_the_whole_target(monkeypatch):
    """The rejection before it must have taken its share of the target."""

    def pick(self, i, proposal, nodes):
        target = self._probs(i)
        rest = target
        for attempt, node in enumerate(nodes):
            token, draft = proposal.tokens[node], proposal.draft_probs[node]
            probability = rule.accept_probability(target, draft, token)
            if self._entropy.coin(self._position, probability, attempt):
                return node, token
            rest = residual(rest, draft, token)
        return None, self._entropy.choose(self._position, rest)

    assert _law_under(monkeypatch, pick) > 0.01


def test_the_enumeration_sees_a_sibling_accepted_on_another_row(monkeypatch):
    honest = rule._Target.pick

    def pick(self, i, proposal, nodes):
        return honest(self, max(i - 1, 0), proposal, nodes)

    assert _law_under(monkeypatch, pick) > 0.01


def test_the_enumeration_sees_siblings_drawn_otherwise_than_they_claim():
    """Without replacement, told as if with it."""

    class Liar(Tree):
        def _one(self, view, limit):
            proposal = super()._one(view, limit)
            rows = proposal.draft_probs.clone()
            if len(rows) > 1:
                rows[1] = rows[0]
            return Proposal(
                proposal.tokens, proposal.sources, proposal.confidence, rows, proposal.parents
            )

    world = World(vocab=3, seed=3)
    assert distance(emitted(world, lambda d: Tree(3, d), DEPTH), world.plain(DEPTH)) < EXACT
    assert distance(emitted(world, lambda d: Liar(3, d), DEPTH), world.plain(DEPTH)) > 0.01
