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

    tokens: ids, at positions start, start+1, ...
    pages: the sequence's page table; covers position start + len(tokens) - 1.
    logit_rows: offsets in ``tokens`` whose next-token logits are wanted, ascending.
    """

    tokens: list[int]
    start: int
    pages: list[int]
    logit_rows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Forward:
    """Result of one pass.

    logits: [R, V] float32, rows in span order then row order; valid until the next pass.
    features: [T, N] of the tapped layers, or None.
    """

    logits: Tensor
    features: Tensor | None = None
