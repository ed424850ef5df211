"""``kv_append`` and ``kv_compact`` in Triton. Legend: as in ``reference.py``; F = J * D."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch

BLOCK = 1024


@triton.jit
def _append(
    key_cache, value_cache, key, value, slots, key_row, value_row, features, BLOCK: tl.constexpr
):
    """caches [P * G, F], rows [T, F], slots [T] int64; program (row, block of features)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < features
    to = tl.load(slots + row) * features + at
    k = tl.load(key + row * key_row + at, mask=inside)
    v = tl.load(value + row * value_row + at, mask=inside)
    tl.store(key_cache + to, k.to(key_cache.dtype.element_ty), mask=inside)
    tl.store(value_cache + to, v.to(value_cache.dtype.element_ty), mask=inside)


@triton.jit
def _compact(key_cache, value_cache, moves, starts, features, BLOCK: tl.constexpr):
    """caches [P * G, F], moves [M, 2] int64, starts [S + 1] int32; program (sequence, block).

    A thread owns a feature through all moves, so that their order is the thread's own.
    """
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < features
    first, last = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    for move in range(first, last):
        source = tl.load(moves + 2 * move) * features + at
        to = tl.load(moves + 2 * move + 1) * features + at
        tl.store(key_cache + to, tl.load(key_cache + source, mask=inside), mask=inside)
        tl.store(value_cache + to, tl.load(value_cache + source, mask=inside), mask=inside)


def kv_append(
    key_cache: Tensor, value_cache: Tensor, key: Tensor, value: Tensor, slots: Tensor
) -> None:
    """Rows [T, J, D] to slots [T] int64 of two caches [P, G, J, D], in place, in their dtype."""
    features = key_cache.shape[2] * key_cache.shape[3]
    k, v = (rows.reshape(len(slots), features) for rows in (key, value))
    if k.stride(1) != 1 or v.stride(1) != 1:
        k, v = k.contiguous(), v.contiguous()
    grid = (len(slots), triton.cdiv(features, BLOCK))
    rows = k, v, slots, k.stride(0), v.stride(0)
    launch(_append, grid, key_cache, value_cache, *rows, features, BLOCK=BLOCK)


def kv_compact(key_cache: Tensor, value_cache: Tensor, moves: Tensor, starts: Tensor) -> None:
    """moves [M, 2] int64 between slots of two caches [P, G, J, D], starts [S+1] int32; in place."""
    features = key_cache.shape[2] * key_cache.shape[3]
    grid = (len(starts) - 1, triton.cdiv(features, BLOCK))
    launch(
        _compact, grid, key_cache, value_cache, moves.contiguous(), starts, features, BLOCK=BLOCK
    )


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    caches = {"key_cache": "*bf16", "value_cache": "*bf16"}
    rows = {"key": "*bf16", "value": "*bf16", "slots": "*i64", "key_row": "i32", "value_row": "i32"}
    moves = {"moves": "*i64", "starts": "*i32"}
    features = {"features": "i32"}
    aligned = ("key_row", "value_row", "features")
    blocks = {"BLOCK": BLOCK}
    return [
        Case(
            name="kv_append bf16",
            kernel=_append,
            signature=caches | rows | features,
            constants=blocks,
            aligned=aligned,
        ),
        Case(
            name="kv_compact bf16",
            kernel=_compact,
            signature=caches | moves | features,
            constants=blocks,
            aligned=aligned,
        ),
    ]
