"""The typed forward context: what one forward pass computes, passed as an argument.

Legend: T packed tokens, P pages, R rows whose logits are wanted, V vocabulary, N tapped features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Span:
    """The rows of one sequence: committed tokens without K/V, then draft tokens.

    tokens: ids, at positions start, start+1, ... (but see ``parents``).
    pages: the sequence's page table; covers slot start + len(tokens) - 1.
    logit_rows: offsets in ``tokens`` whose next-token logits are wanted, ascending.
    parents: of a draft that is a tree, for each of the last len(parents) tokens which of them it
        follows (-1: the token before them all); a parent stands before its children. Such a token
        stands one position behind its parent and sees the committed tokens and its ancestors only.
        Its K/V goes to slot start + offset all the same: those of the path that was accepted are to
        be moved to their positions (``Runner.compact``) before the next pass.
    """

    tokens: list[int]
    start: int
    pages: list[int]
    logit_rows: list[int] = field(default_factory=list)
    parents: tuple[int, ...] | None = None

    def rows_before(self) -> list[int]:
        """For each token the offset of the one that it follows; -1: the one before the span."""
        drafted = 0 if self.parents is None else len(self.parents)
        first = len(self.tokens) - drafted
        before = list(range(-1, first - 1))
        return before + [first + parent for parent in self.parents or ()]

    def positions(self) -> list[int]:
        """The position of each token."""
        found: list[int] = []
        for before in self.rows_before():
            found.append(self.start if before < 0 else found[before] + 1)
        return found


@dataclass(slots=True)
class Forward:
    """Result of one pass.

    logits: [R, V] float32, rows in span order then row order; valid until the next pass.
    features: [T, N] of the tapped layers, or None.
    """

    logits: Tensor
    features: Tensor | None = None
