"""Where the packed rows of a forward pass live in the page pool; built once, read by every layer.

Legend: T packed tokens, S spans (one a sequence), P pages of G tokens, C positions a span attends
to.

A span is a run of rows of one sequence at positions start, start + 1, ... Its page table lists the
pages that hold positions 0 .. start + rows - 1 in order: position p is slot p % G of page table[p
// G].
A span may also be a tree: each row follows an earlier row of it (or the context) and stands one
position behind that, but lies where it would as a run; it sees the context and its own path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedSpan:
    """One span. rows: its slice of the packed rows; start: position of the first one.

    pages: its page table, as a slice where the pages happen to be consecutive (then reading them
    needs no
        copy), else int64 [ceil(C / G)].
    table: the same page numbers on the host, for kernels that want them packed otherwise.
    before: of a tree, for each row the number of the row that it follows (-1: the context).
    """

    rows: slice
    start: int
    pages: slice | Tensor
    table: tuple[int, ...]
    before: tuple[int, ...] | None = None

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    @property
    def context(self) -> int:
        """C: how many positions the last row attends to (of a tree: how many hold its keys)."""
        return self.start + self.count

    def positions(self) -> list[int]:
        """The position of each row."""
        if self.before is None:
            return list(range(self.start, self.context))
        return [self.start + len(self.path(row)) - 1 for row in range(self.count)]

    def path(self, row: int) -> list[int]:
        """The rows that ``row`` of the span sees, itself included, in position order."""
        if self.before is None:
            return list(range(row + 1))
        found: list[int] = []
        while row >= 0:
            found.append(row)
            row = self.before[row]
        return found[::-1]

    def seen(self, row: int, window: int | None = None) -> list[int]:
        """Where the keys that ``row`` sees lie, counted from the span's first position on, in
        position order. window: only the last so many."""
        every = [*range(self.start), *(self.start + other for other in self.path(row))]
        return every if window is None else every[-window:]


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """spans: in packing order. positions, slots: [T] int64; slot = page * G + position % G.

    memo: what was derived from it once for all layers, by name.
    """

    spans: tuple[PagedSpan, ...]
    positions: Tensor
    slots: Tensor
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def build(
        cls,
        starts: Sequence[int],
        counts: Sequence[int],
        page_tables: Sequence[Sequence[int]],
        *,
        page_tokens: int,
        device: torch.device | str = "cpu",
        trees: Mapping[int, Sequence[int]] | None = None,
    ) -> PagedLayout:
        """The layout of S spans of ``counts[i]`` rows from position ``starts[i]`` on.

        A page table may be longer than its span needs; the rest is ignored. trees: number of a span
        -> its ``before``.
        """
        spans: list[PagedSpan] = []
        positions: list[int] = []
        slots: list[int] = []
        for i, (start, count, table) in enumerate(zip(starts, counts, page_tables, strict=True)):
            before = None if trees is None or i not in trees else tuple(trees[i])
            end = start + count
            needed = -(-end // page_tokens)
            assert start >= 0 and count > 0 and needed <= len(table), (start, count, len(table))
            rows = slice(len(positions), len(positions) + count)
            pages = tuple(table[:needed])
            span = PagedSpan(rows, start, _pages(pages, device), pages, before)
            spans.append(span)
            positions.extend(span.positions())
            slots.extend(
                table[p // page_tokens] * page_tokens + p % page_tokens for p in range(start, end)
            )
        return cls(
            tuple(spans),
            torch.tensor(positions, dtype=torch.int64, device=device),
            torch.tensor(slots, dtype=torch.int64, device=device),
        )

    def mask(self, span: PagedSpan, dtype: torch.dtype, window: int | None = None) -> Tensor:
        """[count, C] of ``dtype``: 0 where a row of ``span`` may look, else -inf; made once.

        window: a row sees the last so many positions of what it may, itself included.
        """
        key = (span.start, span.count, span.before, dtype, window)
        found = self.memo.get(key)
        if found is None:
            blocked = torch.full((span.count, span.context), -torch.inf, dtype=dtype)
            if span.before is None:
                blocked.triu_(span.start + 1)
                if window is not None:
                    far = torch.full_like(blocked, -torch.inf)
                    blocked += far.tril_(span.start - window)
            else:
                for row in range(span.count):
                    blocked[row, span.seen(row, window)] = 0.0
            found = self.memo[key] = blocked.to(self.slots.device)
        return found


def _pages(table: Sequence[int], device: torch.device | str) -> slice | Tensor:
    """``table`` as a slice where it is a run of consecutive pages, else int64 [len(table)]."""
    first = table[0]
    if all(page == first + i for i, page in enumerate(table)):
        return slice(first, first + len(table))
    return torch.tensor(table, dtype=torch.int64, device=device)
