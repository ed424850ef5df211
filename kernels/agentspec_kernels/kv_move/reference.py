"""The definitions of ``kv_append`` and ``kv_compact``.

Legend: T packed tokens, J K/V heads, D head size, P pages of G tokens, M moves, S sequences. A slot
is page * G + place in the page.
"""

from __future__ import annotations

from torch import Tensor


def kv_append(
    key_cache: Tensor, value_cache: Tensor, key: Tensor, value: Tensor, slots: Tensor
) -> None:
    """Rows [T, J, D] to slots [T] int64 of two caches [P, G, J, D], in place, in their dtype."""
    for cache, rows in ((key_cache, key), (value_cache, value)):
        cache.view(-1, *cache.shape[2:])[slots] = rows.to(cache.dtype)


def kv_compact(key_cache: Tensor, value_cache: Tensor, moves: Tensor, starts: Tensor) -> None:
    """moves [M, 2] int64 (source slot, slot), in order; starts [S+1] is not looked at."""
    for cache in (key_cache, value_cache):
        flat = cache.view(-1, *cache.shape[2:])
        for source, to in moves.tolist():
            flat[to] = flat[source].clone()
