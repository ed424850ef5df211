"""The definition of ``paged_attention``.

Legend: T packed tokens, H query heads, J K/V heads, D head size, P pages of G tokens, C context of
one span.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import PagedLayout, PagedSpan


def read_pages(cache: Tensor, span: PagedSpan) -> Tensor:
    """The first C positions of a span in ``cache`` [P, G, J, D]: [C, J, D], a view if it can be."""
    pages = (
        cache[span.pages] if isinstance(span.pages, slice) else cache.index_select(0, span.pages)
    )
    return pages.flatten(0, 1)[: span.context]


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """[T, H, D], two caches [P, G, J, D] -> [T, H, D] of the query's dtype.

    Scores, softmax and sums in float32, or float64 for a float64 query; one rounding at the end.
    """
    group = query.shape[1] // key_cache.shape[2]
    wide = torch.promote_types(query.dtype, torch.float32)
    out = torch.empty_like(query)
    for span in layout.spans:
        q = query[span.rows].to(wide)
        k = read_pages(key_cache, span).to(wide).repeat_interleave(group, 1)
        v = read_pages(value_cache, span).to(wide).repeat_interleave(group, 1)
        if span.before is not None:
            out[span.rows] = _by_path(q, k, v, span, scale, window).to(query.dtype)
            continue
        scores = torch.einsum("qhd,khd->hqk", q, k) * scale + layout.mask(span, wide, window)
        out[span.rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(query.dtype)
    return out


def _by_path(
    q: Tensor, k: Tensor, v: Tensor, span: PagedSpan, scale: float, window: int | None
) -> Tensor:
    """A tree's rows q [count, H, D] over k, v [C, H, D] -> [count, H, D], each row by itself.

    A row's keys are put in position order first: what follows is what a chain of its path computes.
    """
    rows = []
    for row in range(span.count):
        seen = span.seen(row, window)
        scores = torch.einsum("hd,khd->hk", q[row], k[seen]) * scale
        rows.append(torch.einsum("hk,khd->hd", scores.softmax(-1), v[seen]))
    return torch.stack(rows)
