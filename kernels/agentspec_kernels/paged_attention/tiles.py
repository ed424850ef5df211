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
    positions that any row sees.
    """

    tiles: Tensor
    tables: Tensor
    paths: Tensor
    context: int

    @classmethod
    def build(cls, layout: PagedLayout, rows: int) -> Tiles:
        """At most ``rows`` a tile; on the layout's device. The layout keeps it for later layers."""
        names = [(name, rows) for name in ("tiles", "tables", "paths")]
        if names[0] not in layout.memo:
            found = _build(layout, rows)
            for name, values in zip(names, found, strict=True):
                tensor = torch.tensor(values, dtype=torch.int32)
                layout.memo[name] = tensor.to(layout.slots.device)
        tiles, tables, paths = (layout.memo[name] for name in names)
        return cls(tiles, tables, paths, max(span.context for span in layout.spans))


def _build(layout: PagedLayout, rows: int) -> tuple[list[list[int]], list[int], list[int]]:
    tiles: list[list[int]] = []
    tables: list[int] = []
    paths: list[int] = []
    for span in layout.spans:
        first, table = span.rows.start, len(tables)
        tables.extend(span.table)
        straight = _straight(span)
        for at in range(0, straight, rows):
            count = min(rows, straight - at)
            tiles.append([first + at, count, span.start + at, span.start, table, -1])
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
