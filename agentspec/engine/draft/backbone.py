"""What computes a block draft, in between features and logits; two ways of it, one contract.

The K/V of context tokens lie in a plane of their own beside the target's: position p of a sequence
is slot p % 16 of page ``pages[p // 16]``, as with the target. Behind the pool's pages the plane has
scratch pages, for the K/V of blocks, which nobody needs after the pass.
Legend: T rows of features, N tapped features, R wanted rows, E hidden size, U rows of draft logits.

Read next: ``block_int8.py`` (fast), ``block_torch.py`` (plain), ``block.py`` (who asks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .block_config import MOST_ROWS

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

MOST_BLOCKS = 16
"""Blocks of one pass."""
PAGE = 16
BLOCK_PAGES = (MOST_ROWS + PAGE - 1) // PAGE + 1
SCRATCH_PAGES = MOST_BLOCKS * BLOCK_PAGES


@dataclass(frozen=True, slots=True)
class Chunk:
    """Committed tokens at positions start, start + 1, ... features: [T, N]; pages: the table."""

    pages: Sequence[int]
    start: int
    features: Tensor


@dataclass(frozen=True, slots=True)
class Block:
    """One block, whose rows see the first ``context`` slots of ``pages`` (``block_table``).

    ids: known tokens (the first one is the anchor), then masks, at positions position, position +
    1, ... of the text. Their K/V goes to the slots behind the context. rows: those whose results
    are wanted, ascending.
    """

    pages: Sequence[int]
    context: int
    position: int
    ids: Sequence[int]
    rows: Sequence[int]


class Backbone(Protocol):
    """num_pages: of the pool; scratch pages are numbered from there on."""

    num_pages: int

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Compute and keep the K/V of committed tokens."""
        ...

    def run(
        self, blocks: Sequence[Block], chunks: Sequence[Chunk] = ()
    ) -> tuple[npt.NDArray, npt.NDArray]:
        """``extend`` by ``chunks``, then the blocks, at most ``MOST_BLOCKS``, which see them.

        -> hidden [R, E] and logits [R, U], float32, in order of blocks then rows; overwritten by
        the next call. Both at once cost less than two calls.
        """
        ...


def scratch(num_pages: int, index: int) -> range:
    """The scratch pages of the index-th block of a pass."""
    first = num_pages + index * BLOCK_PAGES
    return range(first, first + BLOCK_PAGES)


def block_table(pages: Sequence[int], first: int, end: int, spare: Sequence[int]) -> list[int]:
    """The page table of a block whose context is the positions [first, end); first % 16 == 0.

    The page in which the context ends is used on (nobody else knows what lies behind its end);
    ``spare`` pages follow.
    """
    assert first % PAGE == 0
    return [*pages[first // PAGE : -(-end // PAGE)], *spare]
