"""``paged_attention`` by torch's own fused attention, span by span.

Legend: T packed tokens, H query heads, J K/V heads, D head size, P pages of G tokens, C context of
one span.

The query heads that share a K/V head are folded into query rows (a lone row needs no mask, whatever
its head): torch's ``enable_gqa`` copies the keys once per query head instead.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .layout import PagedLayout, PagedSpan
from .reference import read_pages


def paged_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, layout: PagedLayout, scale: float
) -> Tensor:
    """[T, H, D], two caches [P, G, J, D] -> [T, H, D] of the query's dtype."""
    heads = key_cache.shape[2]
    if len(layout.spans) == 1:
        return _span(query, key_cache, value_cache, layout, layout.spans[0], heads, scale)
    out = torch.empty_like(query)
    for span in layout.spans:
        rows = query[span.rows]
        out[span.rows] = _span(rows, key_cache, value_cache, layout, span, heads, scale)
    return out


def _span(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    span: PagedSpan,
    heads: int,
    scale: float,
) -> Tensor:
    """One span's rows [count, H, D] -> [count, H, D]; ``heads`` is J."""
    count, query_heads, size = query.shape
    key = read_pages(key_cache, span).to(query.dtype).transpose(0, 1)[None]
    value = read_pages(value_cache, span).to(query.dtype).transpose(0, 1)[None]
    if count == 1:
        folded = query.view(1, heads, query_heads // heads, size)
        return F.scaled_dot_product_attention(folded, key, value, scale=scale).view(
            1, query_heads, size
        )
    grouped = query.view(count, heads, query_heads // heads, size)
    mask = layout.mask(span, query.dtype) if span.start else None
    parts = [
        F.scaled_dot_product_attention(
            part.transpose(0, 1)[None],
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
        )[0].transpose(0, 1)
        for part in grouped.unbind(2)
    ]
    return torch.stack(parts, 2).view(count, query_heads, size)
