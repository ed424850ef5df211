"""Drawn block drafts leave the law of the text as it is, by exact enumeration of all randomness.

The draft draws from probabilities that are multiples of a cell, so that its uniform numbers can be
enumerated: one for each cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from agentspec_kernels.draft_block import Chain, DraftHead

from agentspec.engine.chaining import joined
from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.engine.draft.block_config import block_config
from agentspec.engine.draft.speller import Rows, Speller
from tests.engine.draft import blockworld
from tests.engine.draft.toyworld import (
    Cut,
    Dice,
    Grammar,
    Silent,
    World,
    distance,
    emitted,
    numbers,
    whole,
)

VOCAB, ROUNDING = 3, 1e-6
SHARES = (0.25, 0.25, 0.5)


@dataclass
class Cells:
    """An entropy whose uniform numbers are the middles of so many cells, each as probable."""

    dice: Dice
    cells: int
    seeded: bool = False
    key: int = 0

    def uniform(self, position: int, purpose: object) -> float:
        return (self.dice.pick([1 / self.cells] * self.cells, position) + 0.5) / self.cells


class Drawn(Silent):
    """The real speller and chain over rows that the text decides; the backbone is left out."""

    name = "drawn"

    def __init__(self, dice: Dice, cells: int, temperature: float, *, blind: bool = False):
        raw = blockworld.draft_config(vocab_size=VOCAB, mask_token_id=0, markov_rank=16)
        random = np.random.default_rng(2)
        head = DraftHead(
            vocab=VOCAB,
            rows=VOCAB,
            hidden=16,
            rank=16,
            markov="vanilla",
            candidates=VOCAB,
            w1=random.integers(-99, 99, (VOCAB, 16)).astype(np.int8),
            w1_scale=np.full(VOCAB, 0.02, np.float32),
            w2=np.zeros((VOCAB, 16), np.int8),
            w2_scale=np.zeros(VOCAB, np.float32),
            confidence=random.normal(size=33).astype(np.float32),
        )
        self._speller = Speller(self.name, block_config(raw), Chain(head), None, blind=blind)
        self._entropy = Cells(dice, cells)
        self._temperature = temperature

    def propose(self, views, limits):
        return [self._one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _one(self, view: DraftView, limit: int) -> Proposal:
        return self._behind(view, limit, ())

    def _behind(self, view: DraftView, limit: int, head: tuple[int, ...]) -> Proposal:
        view.entropy = self._entropy  # type: ignore[assignment]
        logits = np.zeros((limit, VOCAB), np.float32)
        for row in range(limit):
            order = np.argsort(numbers(VOCAB, "order", row, *view.tokens))
            logits[row] = self._temperature * np.log(np.array(SHARES))[order]
        hidden = np.array([numbers(16, "h", row, *view.tokens) for row in range(limit)])
        return self._speller.spell(view, limit, Rows(hidden.astype(np.float32), logits), head)


GRAMMARS: dict[str, Callable[[], Grammar | None]] = {
    "free": lambda: None,
    "masked": lambda: Grammar(legal),
    "forced at the start": lambda: Grammar(legal, {(): (2, 0)}),
    "forced inside": lambda: Grammar(legal, {(0,): (1,), (1,): (2, 1), (2,): (0,)}),
}
CUTS: dict[str, Cut] = {
    "whole": whole,
    "low confidence": lambda view, proposal: next(
        (k for k, c in enumerate(proposal.confidence) if c < 0.6), len(proposal)
    ),
}


def legal(prefix: tuple[int, ...]) -> frozenset[int]:
    """Two or three of three tokens, so that masked shares are multiples of a twelfth."""
    draws = numbers(2, "legal", prefix)
    return frozenset(range(VOCAB)) - ({int(draws[0] * VOCAB)} if draws[1] < 0.7 else set())


class DrawnBehind(Drawn):
    """A certain token, legal or not, and what is drawn behind it."""

    def _one(self, view: DraftView, limit: int) -> Proposal:
        head = Proposal((1,), ("head",), (0.6,))
        tail = self._behind(view, limit - 1, head.tokens) if limit > 1 else Proposal()
        return joined(head, tail) if len(tail) else head


def law_of(
    grammar: str, temperature: float, cut: Cut, kind: type[Drawn] = Drawn, **options: Any
) -> float:
    """How far the law of two (free: three) tokens is from plain decoding's."""
    depth, cells = (3, 4) if grammar == "free" else (2, 12)
    world = World(temperature=temperature, grammar=GRAMMARS[grammar]())
    got = emitted(world, lambda dice: kind(dice, cells, temperature, **options), depth, cut)
    assert math.isclose(sum(got.values()), 1.0, abs_tol=1e-9)
    return distance(got, world.plain(depth))


@pytest.mark.parametrize(("cut", "temperature"), [("whole", 1.0), ("low confidence", 0.6)])
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_emitted_law_is_the_targets(grammar: str, cut: str, temperature: float):
    assert law_of(grammar, temperature, CUTS[cut]) < ROUNDING


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_what_is_drawn_behind_another_draft_keeps_the_law(grammar: str, cut: str):
    assert law_of(grammar, 1.0, CUTS[cut], DrawnBehind) < ROUNDING


@pytest.mark.parametrize("grammar", ["masked", "forced inside"])
def test_blind_drafts_are_lossless_too(grammar: str):
    assert law_of(grammar, 1.0, whole, blind=True) < ROUNDING


class Untrue(Drawn):
    """Tells what it would have drawn from without the mask."""

    def _one(self, view: DraftView, limit: int) -> Proposal:
        proposal = super()._one(view, limit)
        if proposal.draft_probs is None:
            return proposal
        probs = proposal.draft_probs.clone()
        for row, order in enumerate(
            np.argsort(numbers(VOCAB, "order", row, *view.tokens)) for row in range(len(proposal))
        ):
            probs[row] = probs.new_tensor(np.array(SHARES)[order])
        return replace(proposal, draft_probs=probs)


def test_probabilities_that_leave_the_mask_out_are_found_out():
    world = World(temperature=1.0, grammar=Grammar(legal))
    got = emitted(world, lambda dice: Untrue(dice, 12, 1.0), 2)
    assert distance(got, world.plain(2)) > 0.01


def test_cutting_by_the_token_itself_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """A cut may look at confidences, which look at tokens before; at the drawn token only where
    that is tested as the tail."""
    monkeypatch.setattr(Proposal, "tail_at", lambda self, length: None)
    world = World(temperature=1.0)
    got = emitted(
        world,
        lambda dice: Drawn(dice, 4, 1.0),
        3,
        lambda view, proposal: 0 if proposal.tokens[:1] == (1,) else len(proposal),
    )
    assert distance(got, world.plain(3)) > 0.01
