"""Drafts that are trees: grown from what may follow each token, and filtered through the grammar.

Legend: K drafted tokens, V vocabulary, B rows of a block draft, U rows of its logits.

A tree's tokens stand by falling survival (``Proposal``). So the budget's first tokens are the best
subtree of their number, and whether a sampled token is verified never hangs on that token: what
stands before it has a greater survival, and neither what follows it nor what was drawn after it in
its place has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

from agentspec.engine.walk import Walk

from .base import EMPTY, FORCED, DraftView, Proposal

State = TypeVar("State")


class Branch(NamedTuple, Generic[State]):
    """One way on from a node. confidence: P(accepted | the node was); state: where it leads."""

    token: int
    confidence: float
    state: State


def grow(
    name: str,
    start: State,
    branches: Callable[[State], Iterable[Branch[State]]],
    limit: int,
    min_survival: float = 0.0,
) -> Proposal:
    """The one-hot tree of the ``limit`` most probable nodes, from source ``name``.

    branches: what may follow a node, its confidences together at most 1. Nodes whose survival is
    below ``min_survival`` are left out. It is a chain (``parents`` None) where no node has two ways
    on.
    """
    count = 0
    heap: list[tuple[float, int, int, Branch[State]]] = []

    def offer(node: int, survival: float, state: State) -> None:
        nonlocal count
        for branch in branches(state):
            reached = survival * branch.confidence
            if reached >= min_survival and reached > 0.0:
                heapq.heappush(heap, (-reached, count, node, branch))
                count += 1

    tokens: list[int] = []
    confidence: list[float] = []
    parents: list[int] = []
    offer(-1, 1.0, start)
    while heap and len(tokens) < limit:
        minus_survival, _, parent, branch = heapq.heappop(heap)
        tokens.append(branch.token)
        confidence.append(branch.confidence)
        parents.append(parent)
        if len(tokens) < limit:
            offer(len(tokens) - 1, -minus_survival, branch.state)
    if not tokens:
        return EMPTY
    whole = Proposal(tuple(tokens), (name,) * len(tokens), tuple(confidence), None, tuple(parents))
    return whole.cut(len(tokens))


def block_tree(
    name: str,
    probs: Tensor,
    limit: int,
    *,
    candidates: int = 4,
    min_survival: float = 0.0,
    ids: Sequence[int] | npt.NDArray | None = None,
) -> Proposal:
    """A tree from a block draft whose rows don't see the tokens before them.

    probs: [B, U] float, row k over the k-th drafted token; ids: which token each of U is, None: its
    own number. Each node of depth k is followed by the ``candidates`` most probable tokens of row
    k; confidences are the probabilities. One-hot: a function of the committed tokens.
    """
    top = probs.topk(min(candidates, probs.shape[1]), dim=1)
    rows = [
        [(at if ids is None else int(ids[at]), value) for at, value in zip(*row, strict=True)]
        for row in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]

    def branches(depth: int) -> list[Branch[int]]:
        if depth == len(rows):
            return []
        return [Branch(token, min(p, 1.0), depth + 1) for token, p in rows[depth] if p > 0.0]

    return grow(name, 0, branches, limit, min_survival)


def constrain_tree(
    view: DraftView, proposal: Proposal, limit: int, stop_ids: Collection[int] = ()
) -> Proposal:
    """``constrain_draft`` along each path of a tree; of more than ``limit`` nodes the best."""
    with Walk(view.constraint, stop_ids) as walk:
        filtered = _Filter(proposal, walk)
        filtered.visit(-1, -1, limit)
    return filtered.result(limit)


@dataclass(slots=True)
class _Filter:
    """Reads a tree along a walk and writes what may stand. Nodes written: (node read or None,
    forced?, token, parent written)."""

    read: Proposal
    walk: Walk
    written: list[tuple[int | None, bool, int, int]] = field(default_factory=list)

    def visit(self, node: int | None, parent: int, room: int) -> None:
        """Write what follows ``node`` (None: nothing that was read) below ``parent``."""
        mark = self.walk.moved
        while span := self.walk.forced(room):
            for token in span:
                node = self._child(node, token)
                parent = self._write(node, True, token, parent)
                self.walk.advance(token)
            room -= len(span)
        if node is not None and room > 0:
            for child in self.read.below(node):
                self._branch(child, parent, room)
        self.walk.back(self.walk.moved - mark)

    def _branch(self, child: int, parent: int, room: int) -> None:
        token, mark = self.read.tokens[child], self.walk.moved
        legal = self.walk.allows(token)
        if legal or self.read.draft_probs is not None:
            parent = self._write(child, False, token, parent)
        if legal and self.walk.advance(token):
            self.visit(child, parent, room - 1)
        self.walk.back(self.walk.moved - mark)

    def _child(self, node: int | None, token: int) -> int | None:
        if node is None:
            return None
        return next((n for n in self.read.below(node) if self.read.tokens[n] == token), None)

    def _write(self, node: int | None, forced: bool, token: int, parent: int) -> int:
        self.written.append((node, forced, token, parent))
        return len(self.written) - 1

    def result(self, limit: int) -> Proposal:
        """What was written as a proposal of at most ``limit`` tokens, by falling survival."""
        confidence = [
            1.0 if forced or node is None else self.read.confidence[node]
            for node, forced, _, _ in self.written
        ]
        survival: list[float] = []
        for (_, _, _, parent), estimate in zip(self.written, confidence, strict=True):
            survival.append(estimate if parent < 0 else survival[parent] * estimate)
        order = sorted(range(len(self.written)), key=lambda i: (-survival[i], i))[:limit]
        place = {old: new for new, old in enumerate(order)} | {-1: -1}
        chosen = [self.written[i] for i in order]
        names = [
            FORCED if forced or node is None else self.read.sources[node]
            for node, forced, _, _ in chosen
        ]
        return Proposal(
            tuple(token for _, _, token, _ in chosen),
            tuple(names),
            tuple(confidence[i] for i in order),
            self._probs([None if forced else node for node, forced, _, _ in chosen]),
            tuple(place[parent] for _, _, _, parent in chosen),
        ).cut(len(chosen))

    def _probs(self, nodes: Sequence[int | None]) -> Tensor | None:
        """[K, V]: the rows of the nodes that were drawn, zeros for forced tokens."""
        drawn = self.read.draft_probs
        if drawn is None:
            return None
        rows = [torch.zeros_like(drawn[0]) if n is None else drawn[n] for n in nodes]
        return torch.stack(rows) if rows else drawn[:0]
