"""Where the packed rows of a forward pass live in the page pool; built once, read by every layer.

Legend: T packed tokens, S spans (one a sequence), P pages of G tokens, C positions a span attends
to.

A span is a run of rows of one sequence at positions start, start + 1, ... Its page table lists the
pages that hold positions 0 .. start + rows - 1 in order: position p is slot p % G of page table[p
// G].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedSpan:
    """One span. rows: its slice of the packed rows; start: position of the first one.

    pages: its page table, as a slice where the pages happen to be consecutive (then reading them
    needs no
        copy), else int64 [ceil(C / G)].
    """

    rows: slice
    start: int
    pages: slice | Tensor

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def context(self) -> int:
        """C: how many positions the last row attends to."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """spans: in packing order. positions, slots: [T] int64; slot = page * G + position % G."""

    spans: tuple[PagedSpan, ...]
    positions: Tensor
    slots: Tensor
    _masks: dict[tuple[int, int, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def build(
        cls,
        starts: Sequence[int],
        counts: Sequence[int],
        page_tables: Sequence[Sequence[int]],
        *,
        page_tokens: int,
        device: torch.device | str = "cpu",
    ) -> PagedLayout:
        """The layout of S spans of ``counts[i]`` rows from position ``starts[i]`` on.

        A page table may be longer than its span needs; the rest is ignored.
        """
        spans: list[PagedSpan] = []
        positions: list[int] = []
        slots: list[int] = []
        for start, count, table in zip(starts, counts, page_tables, strict=True):
            end = start + count
            needed = -(-end // page_tokens)
            assert start >= 0 and count > 0 and needed <= len(table), (start, count, len(table))
            rows = slice(len(positions), len(positions) + count)
            spans.append(PagedSpan(rows, start, _pages(table[:needed], device)))
            positions.extend(range(start, end))
            slots.extend(
                table[p // page_tokens] * page_tokens + p % page_tokens for p in range(start, end)
            )
        return cls(
            tuple(spans),
            torch.tensor(positions, dtype=torch.int64, device=device),
            torch.tensor(slots, dtype=torch.int64, device=device),
        )

    def mask(self, span: PagedSpan, dtype: torch.dtype) -> Tensor:
        """[count, C] of ``dtype``: 0 where a row of ``span`` may look, -inf after it; made once."""
        found = self._masks.get((span.start, span.count, dtype))
        if found is None:
            blocked = torch.full(
                (span.count, span.context), -torch.inf, dtype=dtype, device=self.slots.device
            )
            found = self._masks[span.start, span.count, dtype] = blocked.triu_(span.start + 1)
        return found


def _pages(table: Sequence[int], device: torch.device | str) -> slice | Tensor:
    """``table`` as a slice where it is a run of consecutive pages, else int64 [len(table)]."""
    first = table[0]
    if all(page == first + i for i, page in enumerate(table)):
        return slice(first, first + len(table))
    return torch.tensor(table, dtype=torch.int64, device=device)
