"""A layout as the Triton kernel reads it: tiles of query rows, page tables, paths.

Legend: T packed tokens, N tiles, P entries of all page tables, A entries of all paths.

A tile is a few rows of one span that see the same keys up to their own position. Rows of a tree
behind its unbranched beginning have a tile each, whose path lists the rows that it sees: its keys
are then read in position order, by the very operations that a chain of that path goes through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .layout import PagedLayout, PagedSpan

FIELDS = 6


@dataclass(frozen=True, slots=True)
class Tiles:
    """tiles: [N, 6] int32: first packed row, rows, position of the first row, start of the span,
    offset into ``tables``, offset into ``paths`` (-1: position p lies where it would in a run).

    tables: [P] int32 page numbers. paths: [A] int32, rows of a span by depth. context: the most
    positions that any row sees. seen: [T] int64, the last position that each row sees.
    """

    tiles: Tensor
    tables: Tensor
    paths: Tensor
    context: int
    seen: Tensor

    @classmethod
    def build(cls, layout: PagedLayout, rows: int, *, whole: bool = False) -> Tiles:
        """At most ``rows`` a tile; on the layout's device. The layout keeps it for later layers.

        whole: a row sees its whole span: a tile's last row then stands at the span's last position.
        """
        names = [(name, rows, whole) for name in ("tiles", "tables", "paths")]
        if names[0] not in layout.memo:
            found = _build(layout, rows, whole)
            for name, values in zip(names, found, strict=True):
                tensor = torch.tensor(values, dtype=torch.int32)
                layout.memo[name] = tensor.to(layout.slots.device)
        tiles, tables, paths = (layout.memo[name] for name in names)
        context = max(span.context for span in layout.spans)
        return cls(tiles, tables, paths, context, _seen(layout) if whole else layout.positions)


def _seen(layout: PagedLayout) -> Tensor:
    """[T] int64: the last position of each row's span."""
    if ("seen",) not in layout.memo:
        last = [span.context - 1 for span in layout.spans for _ in range(span.count)]
        layout.memo[("seen",)] = torch.tensor(last, dtype=torch.int64).to(layout.slots.device)
    return layout.memo[("seen",)]


def _build(
    layout: PagedLayout, rows: int, whole: bool
) -> tuple[list[list[int]], list[int], list[int]]:
    tiles: list[list[int]] = []
    tables: list[int] = []
    paths: list[int] = []
    for span in layout.spans:
        first, table = span.rows.start, len(tables)
        tables.extend(span.table)
        straight = _straight(span)
        for at in range(0, straight, rows):
            count = min(rows, straight - at)
            position = span.context - count if whole else span.start + at
            tiles.append([first + at, count, position, span.start, table, -1])
        for row in range(straight, span.count):
            path = span.path(row)
            position = span.start + len(path) - 1
            tiles.append([first + row, 1, position, span.start, table, len(paths)])
            paths.extend(path)
    return tiles, tables, paths or [0]


def _straight(span: PagedSpan) -> int:
    """How many rows of a span lie as a chain would, before it branches."""
    if span.before is None:
        return span.count
    return next((i for i, row in enumerate(span.before) if row != i - 1), span.count)
