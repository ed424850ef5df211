"""``paged_attention`` by torch's own fused attention, span by span.

Legend: T packed tokens, H query heads, J K/V heads, D head size, P pages of G tokens, C context of
one span.

Of a few rows, the query heads that share a K/V head are folded into query rows, so that keys are
read once for all; of many rows each goes by itself, so that causal blocks can be left out. torch's
own ``enable_gqa`` copies the keys once per query head instead.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .layout import PagedLayout, PagedSpan
from .reference import read_pages

_FOLDED_ROWS = 32


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """[T, H, D], two caches [P, G, J, D] -> [T, H, D] of the query's dtype."""
    if len(layout.spans) == 1:
        return _span(query, key_cache, value_cache, layout, layout.spans[0], scale, window)
    out = torch.empty_like(query)
    for span in layout.spans:
        rows = query[span.rows]
        out[span.rows] = _span(rows, key_cache, value_cache, layout, span, scale, window)
    return out


def _span(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    span: PagedSpan,
    scale: float,
    window: int | None,
) -> Tensor:
    """One span's rows [count, H, D] -> [count, H, D]."""
    (count, query_heads, size), heads = query.shape, key_cache.shape[2]
    if window is not None and window >= span.context:
        window = None
    key = read_pages(key_cache, span).to(query.dtype).transpose(0, 1)[None]
    value = read_pages(value_cache, span).to(query.dtype).transpose(0, 1)[None]
    grouped = query.view(count, heads, query_heads // heads, size)
    if count <= _FOLDED_ROWS:
        whole = count == 1 and window is None
        mask = None if whole else layout.mask(span, query.dtype, window)
        mixed = _folded(grouped, key, value, mask, scale)
    else:
        whole = span.start == 0 and span.before is None and window is None
        mask = None if whole else layout.mask(span, query.dtype, window)
        mixed = _by_head(grouped, key, value, mask, scale)
    return mixed.reshape(count, query_heads, size)


def _folded(
    grouped: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """[count, J, H/J, D], two [1, J, C, D], mask [count, C] -> [count, J, H/J, D]; one call."""
    count, heads, group, size = grouped.shape
    rows = grouped.permute(1, 2, 0, 3).reshape(1, heads, group * count, size)
    if mask is not None:
        mask = mask.repeat(group, 1)
    mixed = F.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scale)
    return mixed.view(heads, group, count, size).permute(2, 0, 1, 3)


def _by_head(
    grouped: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """[count, J, H/J, D], two [1, J, C, D], mask [count, C] or None (causal) -> as ``grouped``."""
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
    return torch.stack(parts, 2)
