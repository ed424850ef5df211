"""``paged_attention``: argument checks and choice of backend.

Legend: T packed tokens, H query heads, J K/V heads, D head size, P pages of G tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference, stock
from .layout import PagedLayout


def _triton(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    scale: float,
    window: int | None,
) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if query.dtype == torch.float64:
        return reference.paged_attention(query, key_cache, value_cache, layout, scale, window)
    from . import kernel

    return kernel.paged_attention(query, key_cache, value_cache, layout, scale, window=window)


BACKENDS = {
    "reference": reference.paged_attention,
    "torch": stock.paged_attention,
    "triton": _triton,
}


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    *,
    scale: float | None = None,
    window: int | None = None,
    backend: str | None = None,
) -> Tensor:
    """Each row attends to its own sequence's positions 0 .. its own: [T, H, D] -> new [T, H, D].

    key_cache, value_cache: [P, G, J, D] of one layer, the rows' own keys and values already written
    (``kv_append``); not changed. Query head h reads K/V head h // (H / J). Slots that no row may
    see are not read into the result, whatever they hold. scale: of the scores; None: D ** -0.5.
    window: a row sees its last so many positions, itself included; None: all.
    Raises ``UnknownBackend``.
    """
    assert key_cache.shape == value_cache.shape and query.shape[2] == key_cache.shape[3]
    assert query.shape[1] % key_cache.shape[2] == 0 and query.shape[0] == len(layout.slots)
    assert window is None or window > 0
    implementation = pick("paged_attention", BACKENDS, backend, query.device.type)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[2])
    return implementation(query, key_cache, value_cache, layout, scale, window)
