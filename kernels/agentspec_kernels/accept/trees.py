"""What ``accept_tree`` takes and gives.

Legend: S sequences, R rows of logits, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .chains import Chains


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Drafted trees. A sequence's first row lies behind its committed tokens, every other one
    behind a drafted token, those that follow the same row in the order in which they were drawn.

    rows: as for chains, but that ``drafts``, ``draft_probs`` and ``coin`` of a row are those of the
    token that it lies behind (-1 in a first row). parents: [R] int32, the row that it follows,
    before it in the same sequence; -1 in a first row.
    """

    rows: Chains
    parents: Tensor

    def check(self) -> None:
        """Assert shapes and dtypes."""
        self.rows.check()
        assert self.parents.shape == self.rows.drafts.shape and self.parents.dtype == torch.int32


@dataclass(frozen=True, slots=True)
class Path:
    """count: [S] int32, drafted tokens that stand. token: [S] int32, the one after them, -1 as in
    ``Decision``. stands: [R] int32, 1 of the rows on the path, a sequence's first one always."""

    count: Tensor
    token: Tensor
    stands: Tensor
