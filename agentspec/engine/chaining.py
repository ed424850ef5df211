"""Sources in a row: what one drafted, and behind it what another drafts as if that stood.

Legend: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .draft.base import DraftView, Proposal

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Follower(Protocol):
    """A drafter that can also draft behind another one's tokens. Beside ``Drafter``."""

    def propose_behind(
        self, views: Seq[DraftView], heads: Seq[Proposal], limits: Seq[int]
    ) -> list[Proposal]:
        """One proposal a view for what follows its committed tokens and then ``heads[i]``, at most
        ``limits[i]`` tokens; may be empty. Confidences take it that the whole head stands."""
        ...


def joined(head: Proposal, tail: Proposal) -> Proposal:
    """``tail`` behind ``head``, which is one-hot; both chains.

    Behind a one-hot head a sampled tail makes a sampled whole: the head's rows of ``draft_probs``
    [K, V] then hold all mass on their tokens, which the rule of acceptance treats as one-hot.
    """
    assert head.draft_probs is None and head.parents is None and tail.parents is None
    return Proposal(
        head.tokens + tail.tokens,
        head.sources + tail.sources,
        head.confidence + tail.confidence,
        None if tail.draft_probs is None else _stacked(head.tokens, tail.draft_probs),
    )


def _stacked(tokens: Seq[int], draft_probs: Tensor) -> Tensor:
    """[len(tokens) + K, V] of ``draft_probs`` [K, V], certain rows before it."""
    rows = draft_probs.new_zeros(len(tokens) + draft_probs.shape[0], draft_probs.shape[1])
    for row, token in enumerate(tokens):
        rows[row, token] = 1.0
    rows[len(tokens) :] = draft_probs
    return rows
