"""``draft_block_attention``: checks and choice of backend.

Legend: as in ``paged_attention/op.py``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentspec_kernels.backend import pick
from agentspec_kernels.paged_attention import PagedLayout

from . import reference


def _triton(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, layout: PagedLayout, scale: float
) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if query.dtype == torch.float64:
        return reference.draft_block_attention(query, key_cache, value_cache, layout, scale)
    from agentspec_kernels.paged_attention import kernel

    return kernel.paged_attention(query, key_cache, value_cache, layout, scale, whole=True)


BACKENDS = {
    "reference": reference.draft_block_attention,
    "torch": reference.draft_block_attention,
    "triton": _triton,
}


def draft_block_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    *,
    scale: float | None = None,
    backend: str | None = None,
) -> Tensor:
    """Each row attends to its sequence's context and all rows of its span: new [T, H, D].

    As ``paged_attention``, but rows of a span see each other both ways; the layout holds no trees.
    Raises ``UnknownBackend``.
    """
    assert key_cache.shape == value_cache.shape and query.shape[2] == key_cache.shape[3]
    assert query.shape[1] % key_cache.shape[2] == 0 and query.shape[0] == len(layout.slots)
    assert all(span.before is None for span in layout.spans)
    implementation = pick("draft_block_attention", BACKENDS, backend, query.device.type)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[2])
    return implementation(query, key_cache, value_cache, layout, scale)
