"""``kv_append``, ``kv_compact``: checks and choice of backend. Legend: as in ``reference.py``."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _append(
    key_cache: Tensor, value_cache: Tensor, key: Tensor, value: Tensor, slots: Tensor
) -> None:
    """As ``reference.kv_append``: one kernel for keys and values."""
    from . import kernel

    kernel.kv_append(key_cache, value_cache, key, value, slots)


def _compact(key_cache: Tensor, value_cache: Tensor, moves: Tensor, starts: Tensor) -> None:
    """As ``reference.kv_compact``; sequences side by side."""
    from . import kernel

    kernel.kv_compact(key_cache, value_cache, moves, starts)


APPEND = {"reference": reference.kv_append, "torch": reference.kv_append, "triton": _append}
COMPACT = {"reference": reference.kv_compact, "torch": reference.kv_compact, "triton": _compact}


def kv_append(
    key_cache: Tensor,
    value_cache: Tensor,
    key: Tensor,
    value: Tensor,
    slots: Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Write rows key and value [T, J, D] to ``slots`` [T] int64 of two caches [P, G, J, D].

    In place, in the caches' dtype; nothing else is touched. No slot stands twice. Raises
    ``UnknownBackend``.
    """
    assert key.shape == value.shape == (len(slots), *key_cache.shape[2:])
    assert key_cache.shape == value_cache.shape and key_cache.dtype == value_cache.dtype
    assert key_cache.is_contiguous() and value_cache.is_contiguous()
    implementation = pick("kv_append", APPEND, backend, key_cache.device.type)
    implementation(key_cache, value_cache, key, value, slots)


def kv_compact(
    key_cache: Tensor,
    value_cache: Tensor,
    moves: Tensor,
    starts: Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Copy slot moves[i, 0] to slot moves[i, 1] for each i, as if one after the other, in place.

    moves: [M, 2] int64; sequence s owns moves starts[s] .. starts[s+1] - 1, and no slot of another
    one's. starts: [S+1] int32, from 0 to M. A source may be overwritten by a later move of its
    sequence, as it is where an accepted path slides down. Raises ``UnknownBackend``.
    """
    assert moves.ndim == 2 and moves.shape[1] == 2 and moves.dtype == torch.int64
    assert key_cache.shape == value_cache.shape and key_cache.dtype == value_cache.dtype
    assert key_cache.is_contiguous() and value_cache.is_contiguous()
    implementation = pick("kv_compact", COMPACT, backend, key_cache.device.type)
    implementation(key_cache, value_cache, moves, starts)
