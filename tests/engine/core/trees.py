"""A drafter of trees that knows the toy model, and how a tree is put in order."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from agentspec.engine.draft.base import DraftView, Proposal
from tests.engine.core.toy import VOCAB, OracleDrafter


class TreeDrafter(OracleDrafter):
    """What the oracle knows, behind a wrong sibling at each place, with wrong tokens below it."""

    def one(self, view: DraftView, limit: int) -> Proposal:
        tokens = OracleDrafter.one(self, view, limit).tokens
        nodes: list[tuple[int, int, float]] = []
        parent = -1
        for depth, token in enumerate(tokens):
            sure = 0.6**depth
            nodes.append(((token + 1 + depth % 2) % VOCAB, parent, 0.5 * sure))
            nodes.append(((token + depth) % VOCAB, len(nodes) - 1, 0.45 * sure))
            nodes.append((token, parent, 0.49 * sure))
            parent = len(nodes) - 1
        return by_survival(self.name, nodes).cut(limit)


def by_survival(name: str, nodes: Seq[tuple[int, int, float]]) -> Proposal:
    """The tree of (token, parent, confidence), in the order that proposals have."""
    survival: list[float] = []
    for _, parent, confidence in nodes:
        survival.append(confidence if parent < 0 else survival[parent] * confidence)
    order = sorted(range(len(nodes)), key=lambda i: (-survival[i], i))
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    return Proposal(
        tuple(nodes[i][0] for i in order),
        (name,) * len(nodes),
        tuple(min(nodes[i][2], 1.0) for i in order),
        None,
        tuple(place[nodes[i][1]] for i in order),
    )
