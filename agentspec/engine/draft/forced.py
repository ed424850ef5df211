"""The grammar filter between drafters and verification: forced spans in, illegal drafts out.

Legend: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from agentspec.engine.walk import Walk

from .base import FORCED, DraftView, Proposal
from .tree import constrain_tree


def constrain_draft(
    view: DraftView, proposal: Proposal, limit: int, stop_ids: Collection[int] = ()
) -> Proposal:
    """``proposal`` with the grammar's forced spans, without what the grammar forbids; <= ``limit``.

    A forced span (source "forced", confidence 1.0) stands wherever the grammar forces one: at the
    start and after each drafted token. Drafted tokens that spell the span are consumed by it; where
    the draft says something else, its rest is dropped.
    A draft ends before its first illegal token. Of a dense one that token becomes the tail, whose
    test yields the residual (dropping it would bias sampling: see ``verify``). Nothing follows one
    of ``stop_ids``.
    Without a constraint the proposal is only cut. The constraint's state is unchanged at return.
    A tree is treated so along each of its paths (``tree.py``).
    """
    if proposal.parents is not None:
        return constrain_tree(view, proposal, limit, stop_ids)
    draft = _Draft(proposal)
    with Walk(view.constraint, stop_ids) as walk:
        while len(draft) < limit:
            span = walk.forced(limit - len(draft))
            if span:
                draft.force(span)
                for token in span:
                    walk.advance(token)
                continue
            token = draft.peek()
            if token is None:
                break
            if not walk.allows(token):
                break
            draft.take()
            if not walk.advance(token):
                break
    return draft.result()


class _Draft:
    """A proposal being read (``peek``, ``take``, ``force``) and the one being written.

    A forced span consumes as many drafted tokens as it writes, or ends the reading: so a drafted
    token keeps its place.
    """

    def __init__(self, proposal: Proposal):
        self._read = proposal
        self._end = len(proposal)
        self._tokens: list[int] = []
        self._forced: list[bool] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def peek(self) -> int | None:
        """The next drafted token, or None at the end."""
        return self._read.tokens[len(self)] if len(self) < self._end else None

    def take(self) -> None:
        self._tokens.append(self._read.tokens[len(self)])
        self._forced.append(False)

    def force(self, span: list[int]) -> None:
        drafted = self._read.tokens[len(self) : min(len(self) + len(span), self._end)]
        if drafted != tuple(span[: len(drafted)]):
            self._end = 0
        self._tokens.extend(span)
        self._forced.extend([True] * len(span))

    def result(self) -> Proposal:
        read, forced = self._read, self._forced
        if not any(forced):
            return read if len(self) == len(read) else read.cut(len(self))
        return Proposal(
            tuple(self._tokens),
            tuple(FORCED if f else read.sources[i] for i, f in enumerate(forced)),
            tuple(1.0 if f else read.confidence[i] for i, f in enumerate(forced)),
            None if read.draft_probs is None else _without(read.draft_probs, forced),
            tail=read.tail_at(len(self)) if len(self) <= self._end else None,
        )


def _without(draft_probs: Tensor, forced: list[bool]) -> Tensor:
    """[len(forced), V]: rows of ``draft_probs`` [K, V] in place, zeros for forced tokens."""
    out = draft_probs.new_zeros(len(forced), draft_probs.shape[1])
    for i, f in enumerate(forced):
        if not f:
            out[i] = draft_probs[i]
    return out
