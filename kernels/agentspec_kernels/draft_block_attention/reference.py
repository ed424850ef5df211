"""The definition of ``draft_block_attention``. Legend: as in ``paged_attention/reference.py``."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.paged_attention.layout import PagedLayout
from agentspec_kernels.paged_attention.reference import read_pages


def draft_block_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, layout: PagedLayout, scale: float
) -> Tensor:
    """[T, H, D], two caches [P, G, J, D] -> [T, H, D] of the query's dtype.

    Scores, softmax and sums in float32, or float64 for a float64 query; one rounding at the end.
    """
    group = query.shape[1] // key_cache.shape[2]
    wide = torch.promote_types(query.dtype, torch.float32)
    out = torch.empty_like(query)
    for span in layout.spans:
        k = read_pages(key_cache, span).to(wide).repeat_interleave(group, 1)
        v = read_pages(value_cache, span).to(wide).repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", query[span.rows].to(wide), k) * scale
        out[span.rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(query.dtype)
    return out
