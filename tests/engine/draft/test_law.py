"""The law of what is emitted equals plain decoding's, by exact enumeration of all randomness."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from agentspec.engine.budget import choose_widths
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft import create, names
from agentspec.engine.draft.base import Proposal
from agentspec.engine.sampling import SamplingParams
from tests.engine.draft import toyworld
from tests.engine.draft.toymodels import ToySteps, draft_model
from tests.engine.draft.toyworld import (
    Dense,
    Grammar,
    OneHot,
    Silent,
    Tree,
    World,
    decode,
    distance,
    emitted,
    law,
    numbers,
)

DEPTH = 3
EXACT = 1e-12


def _legal(vocab: int) -> Callable[[tuple[int, ...]], frozenset[int]]:
    """Each token legal or not by the text before; always at least one."""

    def legal(prefix: tuple[int, ...]) -> frozenset[int]:
        draws = numbers(vocab + 1, "legal", prefix)
        return frozenset(t for t in range(vocab) if draws[t] < 0.5) | {int(draws[-1] * vocab)}

    return legal


GRAMMARS = {
    "free": lambda vocab: None,
    "masked": lambda vocab: Grammar(_legal(vocab)),
    "forced at the start": lambda vocab: Grammar(_legal(vocab), {(): (2, 0)}),
    "forced inside": lambda vocab: Grammar(
        _legal(vocab), {(0,): (1,), (1,): (2, 1), (2,): (0,), (2, 0, 1): (1,)}
    ),
}
DRAFTERS: dict[str, Callable[[int, toyworld.Dice], object]] = {
    "none": lambda vocab, dice: Silent(),
    "dense": Dense,
    "dense, longer than the limit": lambda vocab, dice: Dense(vocab, dice, length=4),
    "one-hot": lambda vocab, dice: OneHot(vocab, length=3),
    "one-hot tree": lambda vocab, dice: Tree(vocab),
    "dense tree": Tree,
    "draft_model": lambda vocab, dice: draft_model(vocab),
    "eagle3 and mtp": lambda vocab, dice: ToySteps(vocab),
    **{name: lambda vocab, dice, name=name: create(name) for name in names()},
}
CUTS: dict[str, toyworld.Cut] = {
    "whole": toyworld.whole,
    "never": lambda view, proposal: 0,
    "at one": lambda view, proposal: min(1, len(proposal)),
    "by the text": lambda view, proposal: int(
        numbers(1, "cut", *view.tokens)[0] * (len(proposal) + 1)
    ),
    "by the budget": lambda view, proposal: choose_widths([proposal], 1, CURVE)[0],
    "low confidence": lambda view, proposal: next(
        (k for k, c in enumerate(proposal.confidence) if c < 0.4), len(proposal)
    ),
}
CURVE = CostCurve.of([1, 2, 3, 4], [1.0, 1.3, 1.45, 1.5])


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_emitted_law_is_the_targets(drafter: str, grammar: str, temperature: float):
    vocab = 3
    world = World(vocab=vocab, temperature=temperature, grammar=GRAMMARS[grammar](vocab))
    plain = world.plain(DEPTH)
    for cut in CUTS.values():
        got = emitted(world, lambda dice: DRAFTERS[drafter](vocab, dice), DEPTH, cut)
        assert distance(got, plain) < EXACT


@pytest.mark.parametrize("grammar", ["free", "masked", "forced inside"])
@pytest.mark.parametrize("drafter", ["dense", "one-hot", "suffix", "one-hot tree", "dense tree"])
def test_emitted_law_over_five_tokens(drafter: str, grammar: str):
    world = World(vocab=5, prompt=(0, 1, 2, 3, 4, 0, 1), grammar=GRAMMARS[grammar](5), seed=1)
    got = emitted(world, lambda dice: DRAFTERS[drafter](5, dice), DEPTH)
    assert distance(got, world.plain(DEPTH)) < EXACT


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("drafter", names())
def test_law_of_whole_generations(drafter: str, grammar: str):
    """As above, for one drafter that lives through the generation and learns from it."""
    world = World(grammar=GRAMMARS[grammar](3), seed=2)
    horizon = len(world.prompt) + 4
    got = law(lambda dice: decode(world, create(drafter), dice, 4), horizon)
    assert distance(got, world.plain(4)) < EXACT


class PenalisedWorld(World):
    """Penalties written out: what a drafted token changes for the rows after it."""

    def probs(self, output):
        params, scores = self.params(), []
        for token, score in enumerate(self.scores(output)):
            score += params.logit_bias.get(token, 0.0)
            if token in self.prompt or token in output:
                ratio = params.repetition_penalty
                score = score / ratio if score > 0 else score * ratio
            score -= params.frequency_penalty * output.count(token)
            score -= params.presence_penalty * (token in output)
            scores.append(score)
        return toyworld.normalised([math.exp(score) for score in scores])


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_penalties_count_drafted_tokens(drafter: str):
    sampling = SamplingParams(
        presence_penalty=0.7,
        frequency_penalty=-0.4,
        repetition_penalty=1.5,
        logit_bias={1: 0.5},
    )
    world = PenalisedWorld(prompt=(0, 1, 0, 1), sampling=sampling)
    got = emitted(world, lambda dice: DRAFTERS[drafter](3, dice), DEPTH)
    assert distance(got, world.plain(DEPTH)) < EXACT


def test_the_enumeration_sees_a_biased_rule(monkeypatch: pytest.MonkeyPatch):
    """Dropping an illegal dense draft without a test of it is noticed; tested it is exact."""
    world = World(grammar=GRAMMARS["masked"](3))

    def cut_before_illegal(view, proposal: Proposal) -> int:
        constraint = view.constraint.clone()
        for k, token in enumerate(proposal.tokens):
            if not constraint.allows(token):
                return k
            constraint.accept([token])
        return len(proposal)

    got = emitted(world, lambda dice: Dense(3, dice), DEPTH, cut_before_illegal)
    assert distance(got, world.plain(DEPTH)) < EXACT
    monkeypatch.setattr(Proposal, "tail_at", lambda self, length: None)
    got = emitted(world, lambda dice: Dense(3, dice), DEPTH, cut_before_illegal)
    assert distance(got, world.plain(DEPTH)) > 0.01


class AppendixA(Dense):
    """The DSpark paper's counter-example (App. A): a fair draft coin, and a second token whose
    confidence is high after token 0 and nil after token 1. Only the first step drafts."""

    def _one(self, view, limit):
        if len(view.tokens) > 1:
            return Proposal()
        tokens = (self.dice.pick([0.5, 0.5]), self.dice.pick([0.5, 0.5]))
        confidence = (0.8, 1.0 if tokens[0] == 0 else 0.0)
        return Proposal(tokens, ("dense",) * 2, confidence, torch.full((2, 2), 0.5))


class AppendixAWorld(World):
    def probs(self, output):
        return [0.7, 0.3]

    def scores(self, output):
        return [math.log(p) for p in self.probs(output)]


def test_a_cut_does_not_look_ahead(monkeypatch: pytest.MonkeyPatch):
    """Passes of 1, 2, 3 rows at 1, 0.5, 0.45 a second: a search over both tokens at once verifies
    the first only where the second promises much, and emits (0.85, 0.15) instead of (0.7, 0.3)."""
    world = AppendixAWorld(vocab=2, prompt=(0,))
    curve = CostCurve.of([1, 2, 3], [1.0, 1 / 0.5, 1 / 0.45])

    def ours(view, proposal: Proposal) -> int:
        return choose_widths([proposal], 1, curve)[0]

    def looking_ahead(view, proposal: Proposal) -> int:
        hidden = Proposal(proposal.tokens, proposal.sources, proposal.confidence)
        return choose_widths([hidden], 1, curve)[0]

    def first_token(cut):
        both = emitted(world, lambda dice: AppendixA(2, dice), 2, cut)
        return {(t,): sum(p for text, p in both.items() if text[0] == t) for t in (0, 1)}

    assert distance(first_token(ours), {(0,): 0.7, (1,): 0.3}) < EXACT
    monkeypatch.setattr(
        Proposal, "tail_at", lambda self, length: None
    )  # cuts as the paper has them
    assert distance(first_token(ours), {(0,): 0.7, (1,): 0.3}) < EXACT
    assert distance(first_token(looking_ahead), {(0,): 0.85, (1,): 0.15}) < EXACT
