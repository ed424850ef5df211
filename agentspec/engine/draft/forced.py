"""The grammar filter between drafters and verification: forced spans in, illegal drafts out.

Legend: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from agentspec.engine.walk import Walk

from .base import FORCED, DraftView, Proposal


def constrain_draft(
    view: DraftView, proposal: Proposal, limit: int, stop_ids: Collection[int] = ()
) -> Proposal:
    """``proposal`` with the grammar's forced spans, without what the grammar forbids; <= ``limit``.

    A forced span (source "forced", confidence 1.0) stands wherever the grammar forces one: at the
    start and after each drafted token. Drafted tokens that spell the span are consumed by it; where
    the draft says something else, its rest is dropped.
    A one-hot draft ends before its first illegal token. A dense one ends *with* it: its row yields
    the residual (dropping the token would bias sampling: see ``verify``), and its confidence stays
    what it was, since a cut by it must not look at the token. Nothing follows one of ``stop_ids``.
    Without a constraint the proposal is only cut. The constraint's state is unchanged at return.
    """
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
            legal = walk.allows(token)
            if legal or draft.dense:
                draft.take()
            if not legal or not walk.advance(token):
                break
    return draft.result()


class _Draft:
    """A proposal being read (``peek``, ``take``, ``force``) and the one being written."""

    def __init__(self, proposal: Proposal):
        self._read = proposal
        self._next = 0
        self._tokens: list[int] = []
        self._origin: list[int | None] = []
        """Index in the proposal read, of each token written; None: forced."""

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def dense(self) -> bool:
        return self._read.draft_probs is not None

    def peek(self) -> int | None:
        """The next drafted token, or None at the end."""
        return self._read.tokens[self._next] if self._next < len(self._read) else None

    def take(self) -> None:
        self._tokens.append(self._read.tokens[self._next])
        self._origin.append(self._next)
        self._next += 1

    def force(self, span: list[int]) -> None:
        self._tokens.extend(span)
        self._origin.extend([None] * len(span))
        ahead = self._read.tokens[self._next : self._next + len(span)]
        aligned = ahead == tuple(span[: len(ahead)])
        self._next = self._next + len(ahead) if aligned else len(self._read)

    def result(self) -> Proposal:
        read, origin = self._read, self._origin
        if not any(at is None for at in origin):
            return read if len(origin) == len(read) else read.cut(len(origin))
        return Proposal(
            tuple(self._tokens),
            tuple(FORCED if at is None else read.sources[at] for at in origin),
            tuple(1.0 if at is None else read.confidence[at] for at in origin),
            None if read.draft_probs is None else _scatter(read.draft_probs, origin),
        )


def _scatter(draft_probs: Tensor, origin: list[int | None]) -> Tensor:
    """Rows of ``draft_probs`` [K, V] in the order of ``origin``; zeros [V] for forced tokens."""
    out = torch.zeros(
        len(origin), draft_probs.shape[1], dtype=draft_probs.dtype, device=draft_probs.device
    )
    for i, at in enumerate(origin):
        if at is not None:
            out[i] = draft_probs[at]
    return out
