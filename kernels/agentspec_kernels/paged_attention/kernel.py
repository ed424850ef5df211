"""``paged_attention`` in Triton, the same bits for a row whatever stands beside it.

Legend: T packed tokens, H query heads, J K/V heads, D head size, P pages of G tokens, N tiles (see
``tiles.py``), S splits of the longest context, M rows of a product: query rows by heads of a group.

The context is cut at multiples of SPLIT positions, wherever a sequence ends and whoever is in the
batch. A program takes one tile, K/V head and split (flash decoding: Dao et al., 2023), and leaves
each row's running maximum, sum and output in float32; a second kernel adds a row's splits in
ascending order. A product has M rows always, filled or not, so a row's sums have one order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch, operand

from .layout import PagedLayout
from .tiles import FIELDS, Tiles

LEAST_ROWS = 16
SPLIT, BLOCK, WARPS = 256, 64, 8
_LOG2_E = 1.4426950408889634


@triton.jit(do_not_specialize=["splits"])
def _attend(
    query,
    key_cache,
    value_cache,
    tiles,
    tables,
    paths,
    out,
    maxima,
    sums,
    query_row,
    query_head,
    page,
    token,
    head,
    splits,
    scale,
    heads,
    size,
    window,
    GROUP: tl.constexpr,
    PAGE: tl.constexpr,
    M: tl.constexpr,
    D: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    FIELDS: tl.constexpr,
    OPERAND: tl.constexpr,
    WHOLE: tl.constexpr,
    SLIDING: tl.constexpr,
):
    """query [T, H, D], caches [P, G, J, D] -> out [S, T, H, D], maxima and sums [S, T, H] float32.

    Program (tile, K/V head, split). WHOLE: rows of a tile see all its keys. SLIDING: a row sees the
    last ``window`` positions only. query_row, query_head, page, token, head: strides.
    """
    tile = tiles + tl.program_id(0) * FIELDS
    kv_head, split = tl.program_id(1), tl.program_id(2)
    first, count, position = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    start, table, path = tl.load(tile + 3), tl.load(tile + 4), tl.load(tile + 5)
    begin = split * SPLIT
    end = tl.minimum(begin + SPLIT, position + count)
    if SLIDING:
        # Whole blocks, so that a row's blocks are the same whoever shares its tile.
        begin = tl.maximum(begin, (position - window + 1) // BLOCK * BLOCK)
    if begin < end:
        m = tl.arange(0, M)
        d = tl.arange(0, D)
        row, query_at = m // GROUP, kv_head * GROUP + m % GROUP
        real, features = row < count, d < size
        packed = (first + row).to(tl.int64)
        q = tl.load(
            query + packed[:, None] * query_row + query_at[:, None] * query_head + d[None, :],
            mask=real[:, None] & features[None, :],
            other=0.0,
        )
        top = tl.full((M,), float("-inf"), tl.float32)
        total = tl.zeros((M,), tl.float32)
        mixed = tl.zeros((M, D), tl.float32)
        for at in range(begin, end, BLOCK):
            p = at + tl.arange(0, BLOCK)
            known = p < end
            slot = p
            if path >= 0:
                depth = p - start
                own = tl.load(paths + path + depth, mask=known & (depth >= 0), other=0)
                slot = tl.where(depth >= 0, start + own, p)
            number = tl.load(tables + table + slot // PAGE, mask=known, other=0).to(tl.int64)
            source = number * page + (slot % PAGE) * token + kv_head * head
            k = tl.load(
                key_cache + source[None, :] + d[:, None],
                mask=known[None, :] & features[:, None],
                other=0.0,
            )
            scores = tl.dot(q.to(OPERAND), k.to(OPERAND), input_precision="ieee") * scale
            seen = known[None, :] & (WHOLE | (p[None, :] <= (position + row)[:, None]))
            if SLIDING:
                seen = seen & (p[None, :] > (position + row - window)[:, None])
            scores = tl.where(seen & real[:, None], scores, float("-inf"))
            best = tl.maximum(top, tl.max(scores, 1))
            # A row that ends before this block has seen nothing: no difference of infinities.
            shift = tl.where(best == float("-inf"), 0.0, best)
            weight = tl.exp2(scores - shift[:, None])
            fade = tl.exp2(top - shift)
            total = total * fade + tl.sum(weight, 1)
            v = tl.load(
                value_cache + source[:, None] + d[None, :],
                mask=known[:, None] & features[None, :],
                other=0.0,
            )
            rounded = weight.to(q.dtype).to(OPERAND)
            product = tl.dot(rounded, v.to(OPERAND), input_precision="ieee")
            mixed = mixed * fade[:, None] + product
            top = best
        to = packed * heads + query_at + tl.cast(split, tl.int64) * splits
        tl.store(maxima + to, top, mask=real)
        tl.store(sums + to, total, mask=real)
        tl.store(
            out + to[:, None] * size + d[None, :], mixed, mask=real[:, None] & features[None, :]
        )


@triton.jit(do_not_specialize=["splits"])
def _merge(
    parts,
    maxima,
    sums,
    positions,
    out,
    splits,
    heads,
    size,
    window,
    D: tl.constexpr,
    SPLIT: tl.constexpr,
    SLIDING: tl.constexpr,
):
    """parts [S, T, H, D], maxima and sums [S, T, H], positions [T] -> out [T, H, D]; program (row,
    head). SLIDING: splits that lie before the row's window were not written."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, D)
    inside = d < size
    at = row * heads + head
    position = tl.load(positions + row)
    last = (position // SPLIT).to(tl.int32)
    first = tl.cast(0, tl.int32)
    if SLIDING:
        first = (tl.maximum(position - window + 1, 0) // SPLIT).to(tl.int32)
    begin = at + tl.cast(first, tl.int64) * splits
    top = tl.load(maxima + begin)
    total = tl.load(sums + begin)
    mixed = tl.load(parts + begin * size + d, mask=inside, other=0.0)
    for split in range(first + 1, last + 1):
        here = at + tl.cast(split, tl.int64) * splits
        other = tl.load(maxima + here)
        best = tl.maximum(top, other)
        fade, grow = tl.exp2(top - best), tl.exp2(other - best)
        total = total * fade + tl.load(sums + here) * grow
        part = tl.load(parts + here * size + d, mask=inside, other=0.0)
        mixed = mixed * fade + part * grow
        top = best
    tl.store(out + at * size + d, (mixed / total).to(out.dtype.element_ty), mask=inside)


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    layout: PagedLayout,
    scale: float,
    *,
    split: int = SPLIT,
    block: int = BLOCK,
    whole: bool = False,
    window: int | None = None,
) -> Tensor:
    """[T, H, D], two caches [P, G, J, D] -> new [T, H, D]; float32, float16 or bfloat16.

    split, block: positions; they decide the order of sums, so they are the same for a whole run.
    whole: a row sees all rows of its span (``draft_block_attention``). window: its last positions.
    """
    assert window is None or not whole
    if query.stride(2) != 1:
        query = query.contiguous()
    rows, heads, size = query.shape
    kv_heads = key_cache.shape[2]
    group = heads // kv_heads
    m = max(LEAST_ROWS, triton.next_power_of_2(group))
    work = Tiles.build(layout, m // group, whole=whole)
    splits = triton.cdiv(work.context, split)
    float32 = {"dtype": torch.float32, "device": query.device}
    parts = torch.empty((splits, rows, heads, size), **float32)
    maxima = torch.empty((splits, rows, heads), **float32)
    sums = torch.empty((splits, rows, heads), **float32)
    assert key_cache.stride() == value_cache.stride() and key_cache.stride(3) == 1
    launch(
        _attend,
        (len(work.tiles), kv_heads, splits),
        *(query, key_cache, value_cache, work.tiles, work.tables, work.paths),
        *(parts, maxima, sums),
        *(query.stride(0), query.stride(1), *key_cache.stride()[:3]),
        *(rows * heads, scale * _LOG2_E, heads, size, window or 0),
        GROUP=group,
        PAGE=key_cache.shape[1],
        M=m,
        D=max(16, triton.next_power_of_2(size)),
        SPLIT=split,
        BLOCK=block,
        FIELDS=FIELDS,
        OPERAND=operand(query.dtype),
        WHOLE=whole,
        SLIDING=window is not None,
        warps=WARPS,
    )
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    launch(
        _merge,
        (rows, heads),
        *(parts, maxima, sums, work.seen, out, rows * heads, heads, size, window or 0),
        D=triton.next_power_of_2(size),
        SPLIT=split,
        SLIDING=window is not None,
    )
    return out


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    pointers = dict.fromkeys(("tiles", "tables", "paths"), "*i32")
    pointers |= dict.fromkeys(("out", "maxima", "sums"), "*fp32")
    names = ("query_row", "query_head", "page", "token", "head", "size", "splits")
    sizes = dict.fromkeys((*names, "heads", "window"), "i32") | {"scale": "fp32"}
    found = []
    for dtype, group, size, seen in (
        ("bf16", 3, 64, ""),
        ("bf16", 4, 128, ""),
        ("bf16", 4, 128, " whole"),
        ("bf16", 1, 256, ""),
        ("bf16", 2, 256, " sliding"),
        ("fp32", 4, 64, ""),
    ):
        kind = torch.float32 if dtype == "fp32" else torch.bfloat16
        tensors = dict.fromkeys(("query", "key_cache", "value_cache"), f"*{dtype}")
        blocks = {"GROUP": group, "PAGE": 16, "M": LEAST_ROWS, "D": size}
        blocks |= {
            "SPLIT": SPLIT,
            "BLOCK": BLOCK,
            "FIELDS": FIELDS,
            "OPERAND": operand(kind),
            "WHOLE": seen == " whole",
            "SLIDING": seen == " sliding",
        }
        signature = tensors | pointers | sizes
        name = f"paged_attention {dtype} {group}x{size}{seen}"
        found.append(
            Case(
                name=name,
                kernel=_attend,
                signature=signature,
                constants=blocks,
                aligned=names[:-1],
                warps=WARPS,
            )
        )
    merge = dict.fromkeys(("parts", "maxima", "sums"), "*fp32") | {"positions": "*i64"}
    merge |= {"out": "*bf16"} | dict.fromkeys(("splits", "heads", "size", "window"), "i32")
    constants = {"D": 128, "SPLIT": SPLIT, "SLIDING": True}
    found.append(
        Case(
            name="paged_attention merge",
            kernel=_merge,
            signature=merge,
            constants=constants,
            aligned=("size",),
        )
    )
    return found
