"""``markov_step`` in Triton. Legend: as in ``step.py``.

A sequence's program finds the rank of the K-th best logit, writes the K rows' numbers side by side,
and works on those alone: W2 is read in K rows, nothing of size U or U x r is written. The order of
candidates is counted, not sorted: K^2 comparisons in registers.
"""

# What is declared constexpr takes plain numbers.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch
from agentspec_kernels.accept.kernel import _last_rank, _mass, _rank, _scores
from agentspec_kernels.accept.noise import gumbel

from .step import Choice, Step

BLOCK, WARPS = 512, 8
LOWEST: tl.constexpr = tl.constexpr(-(2**31))


@triton.jit
def _keep(logits, mask, width, kept, K: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Write the numbers of the K best allowed rows to ``kept`` [K], ascending; how many it is."""
    goal = tl.full((), K, tl.float64)
    none = tl.full((), LOWEST, tl.int32)
    zero = tl.zeros((), tl.float64)
    one = tl.full((), 1.0, tl.float32)
    bound = _last_rank(logits, mask, width, one, one, goal, none, zero, False, MASKED, BLOCK)
    above = _mass(logits, mask, width, one, one, bound + 1, none, zero, False, MASKED, BLOCK)
    room = (goal - above).to(tl.int32)
    count = tl.full((), 0, tl.int32)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, width, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        x = _scores(logits, mask, width, v, MASKED)
        rank = _rank(x)
        tie = (rank == bound).to(tl.int32)
        nth = ties + tl.cumsum(tie, 0) - tie
        good = (rank > bound) | ((tie != 0) & (nth < room))
        good = (good & (x > float("-inf"))).to(tl.int32)
        at = count + tl.cumsum(good, 0) - good
        tl.store(kept + at, v, mask=good != 0)
        count += tl.sum(good, 0)
        ties += tl.sum(tie, 0)
    return count


@triton.jit
def _step(
    logits,
    vector,
    w2,
    w2_scale,
    temperature,
    top_k,
    top_p,
    min_p,
    seeded,
    key,
    pick,
    mask,
    target_id,
    kept,
    tokens,
    ids,
    probs,
    stride,
    width,
    rank,
    words,
    K: tl.constexpr,
    RANK: tl.constexpr,
    MASKED: tl.constexpr,
    NAMED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """kept, ids [B, K] int32, probs [B, K] float32, tokens [B] int32; program: a sequence."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    mask += row * words
    kept += row * K
    count = _keep(logits, mask, width, kept, K, MASKED, BLOCK)
    # The numbers were written by other threads of this program.
    tl.debug_barrier()
    i = tl.arange(0, K)
    real = i < count
    at = tl.load(kept + i, mask=real, other=0)
    r = tl.arange(0, RANK)
    factor = tl.load(vector + row * rank + r, mask=r < rank, other=0.0)
    codes = tl.load(
        w2 + at.to(tl.int64)[:, None] * rank + r[None, :],
        mask=real[:, None] & (r < rank)[None, :],
        other=0,
    )
    bias = tl.sum(codes.to(tl.float32) * factor[None, :], 1) * tl.load(w2_scale + at)
    value = tl.load(logits + at, mask=real, other=0.0).to(tl.float32) + bias
    value = tl.where(real, value, float("-inf"))
    name = at
    if NAMED:
        name = tl.load(target_id + at)
    # better[i, j]: candidate j comes before candidate i.
    better = value[None, :] > value[:, None]
    better = better | ((value[None, :] == value[:, None]) & (i[None, :] < i[:, None]))
    place = tl.sum(better.to(tl.int32), 1)
    heat = tl.load(temperature + row)
    divisor = tl.where(heat > 0, heat, 1.0)
    # A row without candidates goes through with weights of zero.
    top = tl.where(count > 0, tl.max(value, 0), 0.0)
    weight = tl.exp((value - top) / divisor)
    k = tl.load(top_k + row)
    limit = tl.where(heat > 0, tl.where(k > 0, k, K), 1)
    weight = tl.where(real & (place < limit), weight, 0.0)
    weight = weight / tl.maximum(tl.sum(weight, 0), 1e-30)
    p = tl.load(top_p + row)
    before = tl.sum(tl.where(better, weight[None, :], 0.0), 1)
    goal = tl.where(p < 1, p, 2.0)
    weight = tl.where((before < goal) | (place == 0), weight, 0.0)
    weight = tl.where(weight >= tl.load(min_p + row) * tl.max(weight, 0), weight, 0.0)
    weight = weight / tl.maximum(tl.sum(weight, 0), 1e-30)
    stays = weight > 0
    reached = tl.sum(tl.where(better, weight[None, :], 0.0), 1) + weight
    hit = stays & (reached.to(tl.float64) > tl.load(pick + row))
    last = tl.max(tl.where(stays, place, 0), 0)
    chosen = tl.minimum(tl.min(tl.where(hit, place, K), 0), last)
    if (tl.load(seeded + row) != 0) & (heat > 0):
        noisy = tl.log(tl.where(stays, weight, 1.0).to(tl.float64)) + gumbel(
            tl.load(key + row), name
        )
        noisy = tl.where(stays, noisy, float("-inf"))
        chosen = tl.min(tl.where(noisy == tl.max(noisy, 0), place, K), 0)
    token = tl.max(tl.where((place == chosen) & real, name, -1), 0)
    tl.store(tokens + row, tl.where(count > 0, token, -1))
    tl.store(ids + row * K + place, tl.where(stays & real, name, -1))
    tl.store(probs + row * K + place, tl.where(stays & real, weight, 0.0))


def markov_step(step: Step) -> Choice:
    """See ``op.markov_step``."""
    (rows, width), rank, k = step.logits.shape, step.vector.shape[1], step.candidates
    device = step.logits.device
    kept, ids = (torch.empty((rows, k), dtype=torch.int32, device=device) for _ in "ki")
    tokens = torch.empty(rows, dtype=torch.int32, device=device)
    probs = torch.empty((rows, k), dtype=torch.float32, device=device)
    launch(
        _step,
        (rows,),
        *(step.logits, step.vector, step.w2, step.w2_scale),
        *(step.temperature, step.top_k, step.top_p, step.min_p),
        *(step.seeded, step.key, step.pick),
        step.top_k if step.mask is None else step.mask,
        step.top_k if step.target_id is None else step.target_id,
        *(kept, tokens, ids, probs, step.logits.stride(0), width, rank, -(-width // 32)),
        K=k,
        RANK=triton.next_power_of_2(rank),
        MASKED=step.mask is not None,
        NAMED=step.target_id is not None,
        BLOCK=BLOCK,
        warps=WARPS,
    )
    return Choice(tokens, ids, probs)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    integers = ("top_k", "seeded", "mask", "target_id", "kept", "tokens", "ids")
    floats = ("vector", "w2_scale", "temperature", "top_p", "min_p", "probs")
    base = dict.fromkeys(integers, "*i32") | dict.fromkeys(floats, "*fp32")
    base |= {"key": "*i64", "pick": "*fp64", "w2": "*i8"}
    base |= dict.fromkeys(("stride", "width", "rank", "words"), "i32")
    return [
        Case(
            name=f"markov_step {dtype} {k}x{rank}",
            kernel=_step,
            signature=base | {"logits": f"*{dtype}"},
            constants={"K": k, "RANK": rank, "MASKED": True, "NAMED": named, "BLOCK": BLOCK},
            aligned=("stride", "width", "rank"),
            warps=WARPS,
        )
        for dtype, k, rank, named in (("bf16", 128, 256, False), ("fp32", 128, 64, True))
    ]
