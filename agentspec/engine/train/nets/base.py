"""What the trainer asks of every method: hidden rows, the Markov input of each, confidence logits.

Legend: T packed tokens of several sequences, A anchors, K proposed tokens, E hidden size,
N tapped features (their layers side by side), r Markov rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agentspec.engine.train.spec import DraftSpec


class Piece(NamedTuple):
    """The tokens and anchors of one sequence."""

    tokens: slice
    anchors: slice


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed sequences and their anchors, both in the sequences' order.

    ids, positions, owner [T] int64: token, position in its sequence, index of its sequence.
    features [T, N], last [T, E] float: tapped outputs, and the last hidden after the final norm.
    anchors [A] int64: packed index of each anchor. labels, previous [A, K] int64: the tokens that
    are to be proposed, and the one before each. supervised [A, K] bool: which count.
    """

    ids: Tensor
    positions: Tensor
    owner: Tensor
    features: Tensor
    last: Tensor
    anchors: Tensor
    labels: Tensor
    previous: Tensor
    supervised: Tensor

    @property
    def context_tokens(self) -> int:
        return len(self.ids)

    def pieces(self) -> list[Piece]:
        """One a sequence, in order: attention never crosses them, so it is computed apart."""
        tokens = torch.bincount(self.owner).tolist()
        anchors = torch.bincount(self.owner[self.anchors], minlength=len(tokens)).tolist()
        found, token, anchor = [], 0, 0
        for t, a in zip(tokens, anchors, strict=True):
            found.append(Piece(slice(token, token + t), slice(anchor, anchor + a)))
            token, anchor = token + t, anchor + a
        return found


@dataclass(frozen=True, slots=True)
class Rows:
    """hidden [A, K, E], after the last norm. markov [A, K, r]: input of w2, or None.

    confidence [A, K]: logits, or None.
    """

    hidden: Tensor
    markov: Tensor | None = None
    confidence: Tensor | None = None


class DraftNet(nn.Module):
    """A method. ``w2`` is the Markov head's output matrix [V, r], or None.

    With a shortlist, V of logits is its U tokens; ``d2t`` [U] is token - row, as EAGLE-3 has it.
    """

    d2t: Tensor

    def __init__(self, spec: DraftSpec):
        super().__init__()
        self.spec = spec
        if spec.draft_vocab is not None:
            self.register_buffer("d2t", torch.zeros(spec.draft_vocab, dtype=torch.int64))

    @property
    def token_ids(self) -> Tensor | None:
        """[U] int64: the token of each row of logits; None: the target's vocabulary."""
        if self.spec.draft_vocab is None:
            return None
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def propose_only(self, ids: Tensor) -> None:
        """ids [U] int64, ascending: the tokens of a net with a shortlist."""
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))

    @property
    def w2(self) -> Tensor | None:
        return None

    def forward(self, batch: Batch, embedding: Tensor) -> Rows:
        """Teacher-forced rows of every anchor. embedding [V, E]: the target's, never changed."""
        raise NotImplementedError


def eye_of_blocks(anchors: int, size: int, causal: bool, device: torch.device) -> Tensor:
    """Which rows of all blocks a row sees: its own block's. -> [A*size, A*size] bool."""
    place = torch.arange(anchors * size, device=device)
    block = place // size
    same = block[:, None] == block[None, :]
    return same & (place[None, :] <= place[:, None]) if causal else same
