"""kv_append and kv_compact against plain loops over slots, in a pool of NaN."""

from __future__ import annotations

import pytest
import torch
from agentspec_kernels.kv_move import kv_append, kv_compact

BACKENDS = ("reference", "triton")
DTYPES = (torch.float32, torch.bfloat16)
PAGES, PAGE = 6, 4


def caches(heads: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.full((PAGES, PAGE, heads, size), torch.nan, dtype=dtype) for _ in "kv"]


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads, size", [(1, 3), (3, 64), (9, 128)])
def test_append(heads: int, size: int, dtype: torch.dtype, backend: str) -> None:
    key, value = caches(heads, size, dtype)
    slots = torch.tensor([17, 3, 0, 23, 9])
    packed = torch.randn(5, (2 + heads) * 2 * size).to(
        dtype
    )  # K and V beside q, as a layer has them
    k, v = (
        packed[:, at * size : (at + heads) * size].view(5, heads, size) for at in (2, 2 + heads)
    )
    kv_append(key, value, k, v, slots, backend=backend)
    for cache, rows in ((key, k), (value, v)):
        expected = caches(heads, size, dtype)[0]
        for row, slot in enumerate(slots.tolist()):
            expected[slot // PAGE, slot % PAGE] = rows[row]
        same(cache, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_compact_moves_in_order(dtype: torch.dtype, backend: str) -> None:
    key, value = (torch.randn(PAGES, PAGE, 3, 400).to(dtype) for _ in "kv")
    # The first sequence slides down by one over its own sources; the second has none; the third.
    moves, starts = [(6, 5), (7, 6), (9, 7), (20, 13)], [0, 3, 3, 4]
    expected = [cache.clone() for cache in (key, value)]
    for cache in expected:
        flat = cache.view(PAGES * PAGE, -1)
        for source, to in moves:
            flat[to] = flat[source].clone()
    kv_compact(
        key, value, torch.tensor(moves), torch.tensor(starts, dtype=torch.int32), backend=backend
    )
    same(key, expected[0])
    same(value, expected[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_to_do(backend: str) -> None:
    key, value = caches(2, 8, torch.float32)
    none = torch.zeros(0, 2, 8)
    kv_append(key, value, none, none, torch.zeros(0, dtype=torch.int64), backend=backend)
    starts = torch.tensor([0], dtype=torch.int32)
    kv_compact(key, value, torch.zeros(0, 2, dtype=torch.int64), starts, backend=backend)
    assert key.isnan().all() and value.isnan().all()
