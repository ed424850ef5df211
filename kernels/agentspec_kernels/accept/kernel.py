"""``accept`` in Triton. Legend: as in ``chains.py``; B tokens of a block.

A row's program walks its scores a few times (they stay in the second-level cache): the best one;
where top_k or top_p cut, a search for the score of the last token that stays, four bits at a walk
over the scores' own order; the mass that is left; the choice. Nothing of size V is written.
"""

# What is declared constexpr takes plain numbers.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch

from .chains import Chains, Decision
from .noise import gumbel

BLOCK, WARPS = 512, 8
LEAST_RESIDUAL: tl.constexpr = tl.constexpr(1e-12)
LOWEST: tl.constexpr = tl.constexpr(-(2**31))


@triton.jit
def _scores(logits, mask, vocab, v, MASKED: tl.constexpr):
    """[B] float32 of tokens v, -inf where forbidden; zero has one sign, so equals are equal."""
    inside = v < vocab
    x = tl.load(logits + v, mask=inside, other=float("-inf")).to(tl.float32) + 0.0
    if MASKED:
        word = tl.load(mask + v // 32, mask=inside, other=0)
        x = tl.where(((word >> (v % 32)) & 1) != 0, x, float("-inf"))
    return x


@triton.jit
def _rank(x):
    """Integers [B] int32 in the order of float32 x [B]."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _masses(
    logits,
    mask,
    vocab,
    top,
    heat,
    least,
    bound,
    room,
    WEIGH: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For each of ``least`` [16] int32 the scores of that rank and above, weighed or counted: [16]
    float64.

    Those of rank ``bound`` count as if only ``room`` of them were there.
    """
    total = tl.zeros((16,), tl.float64)
    for begin in range(0, vocab, BLOCK):
        x = _scores(logits, mask, vocab, begin + tl.arange(0, BLOCK), MASKED)
        rank = _rank(x)
        weight = tl.where(x > float("-inf"), 1.0, 0.0)
        if WEIGH:
            weight = tl.exp((x - top) / heat)
        above = (rank[None, :] >= least[:, None]) & (rank > bound)[None, :]
        total += tl.sum(tl.where(above, weight.to(tl.float64)[None, :], 0.0), 1)
        ties = rank == bound
        number = tl.minimum(tl.sum(ties.to(tl.float64), 0), room)
        one = tl.max(tl.where(ties, weight, 0.0), 0).to(tl.float64)
        total += tl.where(bound >= least, one * number, 0.0)
    return total


@triton.jit
def _mass(
    logits,
    mask,
    vocab,
    top,
    heat,
    least,
    bound,
    room,
    WEIGH: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One of ``_masses``: float64."""
    ranks = tl.zeros((16,), tl.int32) + least
    return tl.max(
        _masses(logits, mask, vocab, top, heat, ranks, bound, room, WEIGH, MASKED, BLOCK), 0
    )


@triton.jit
def _last_rank(
    logits,
    mask,
    vocab,
    top,
    heat,
    goal,
    bound,
    room,
    WEIGH: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The highest rank such that the scores from it on hold ``goal``, int32; LOWEST: none.

    Four bits a walk; masses fall with the rank, in their roundings too: the sums have one order.
    """
    found = tl.full((), LOWEST, tl.int64)
    digit = tl.arange(0, 16).to(tl.int64)
    for step in range(0, 8):
        trials = (found + (digit << (28 - 4 * step))).to(tl.int32)
        held = _masses(logits, mask, vocab, top, heat, trials, bound, room, WEIGH, MASKED, BLOCK)
        enough = tl.sum(((held >= goal) & (digit > 0)).to(tl.int64), 0)
        found += enough << (28 - 4 * step)
    return found.to(tl.int32)


@triton.jit
def _cut(logits, mask, vocab, top, heat, k, p, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Where top_k and top_p cut: the lowest rank that stays, int32, and how many of it, float64."""
    bound = tl.full((), LOWEST, tl.int32)
    room = tl.full((), 0.0, tl.float64)
    if (k > 0) & (k < vocab):
        goal = k.to(tl.float64)
        bound = _last_rank(logits, mask, vocab, top, heat, goal, bound, room, False, MASKED, BLOCK)
        above = _mass(logits, mask, vocab, top, heat, bound + 1, bound, room, False, MASKED, BLOCK)
        room = goal - above
    if p < 1:
        whole = _mass(logits, mask, vocab, top, heat, bound, bound, room, True, MASKED, BLOCK)
        goal = p.to(tl.float64) * whole
        last = _last_rank(logits, mask, vocab, top, heat, goal, bound, room, True, MASKED, BLOCK)
        if last >= bound:
            above = _mass(
                logits, mask, vocab, top, heat, last + 1, bound, room, True, MASKED, BLOCK
            )
            bits = last ^ ((last >> 31) & 0x7FFFFFFF)
            one = tl.exp((bits.to(tl.float32, bitcast=True) - top) / heat).to(tl.float64)
            ties = tl.maximum(tl.ceil((goal - above) / one), 1.0)
            room = tl.where(last == bound, tl.minimum(ties, room), ties)
            bound = last
    return bound, room


@triton.jit
def _weights(logits, mask, vocab, v, before, top, heat, bound, room, min_p, MASKED: tl.constexpr):
    """exp of scores over the temperature [B] float32, 0 where cut; and ties so far."""
    x = _scores(logits, mask, vocab, v, MASKED)
    rank = _rank(x)
    tie = (rank == bound).to(tl.int32)
    nth = before + tl.cumsum(tie, 0) - tie
    weight = tl.exp((x - top) / heat)
    keep = (rank > bound) | ((tie != 0) & (nth.to(tl.float64) < room))
    return tl.where(keep & (weight >= min_p), weight, 0.0), before + tl.sum(tie, 0)


@triton.jit
def _rest(weight, total, v, draft, claims, vocab, DENSE: tl.constexpr):
    """What a rejection leaves of the target: [B] float64, not normalised."""
    probs = weight.to(tl.float64) / total
    if DENSE:
        claim = tl.load(claims + v, mask=v < vocab, other=0.0).to(tl.float64)
        return tl.where(draft >= 0, tl.maximum(probs - claim, 0.0), probs)
    return tl.where(v == draft, 0.0, probs)


@triton.jit
def _best(logits, mask, vocab, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """The largest score, its smallest token, and how many scores are no number."""
    top = tl.full((), float("-inf"), tl.float32)
    best = tl.full((), 0, tl.int32)
    bad = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        x = _scores(logits, mask, vocab, v, MASKED)
        bad += tl.sum((x != x).to(tl.int32), 0)
        here = tl.max(x, 0)
        if here > top:
            top = here
            best = tl.min(tl.where(x == here, v, 2147483647), 0)
    return top, best, bad


@triton.jit
def _decide(
    logits,
    mask,
    drafts,
    claims,
    temperature,
    top_k,
    top_p,
    min_p,
    seeded,
    key,
    coin,
    pick,
    stands,
    tokens,
    stride,
    vocab,
    words,
    MASKED: tl.constexpr,
    DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """stands, tokens [R] int32; program: a row. claims: [R, V] draft_probs."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    mask += row * words
    claims += row * vocab
    draft, heat = tl.load(drafts + row), tl.load(temperature + row)
    top, best, bad = _best(logits, mask, vocab, MASKED, BLOCK)
    chosen = best
    accepted = best == draft
    if (bad > 0) | (top == float("-inf")) | (top == float("inf")):
        chosen = -1
        accepted = draft != draft
    elif heat > 0:
        bound, room = _cut(
            logits,
            mask,
            vocab,
            top,
            heat,
            tl.load(top_k + row),
            tl.load(top_p + row),
            MASKED,
            BLOCK,
        )
        least = tl.load(min_p + row)
        total = tl.zeros((), tl.float64)
        own = tl.zeros((), tl.float64)
        ties = tl.full((), 0, tl.int32)
        noisy = tl.load(seeded + row) != 0
        peak = tl.full((), float("-inf"), tl.float64)
        start = tl.load(key + row)
        for begin in range(0, vocab, BLOCK):
            v = begin + tl.arange(0, BLOCK)
            weight, ties = _weights(
                logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED
            )
            total += tl.sum(weight.to(tl.float64), 0)
            own += tl.sum(tl.where(v == draft, weight, 0.0).to(tl.float64), 0)
            if noisy:
                x = _scores(logits, mask, vocab, v, MASKED).to(tl.float64)
                value = (x - top.to(tl.float64)) / heat.to(tl.float64) + gumbel(start, v)
                value = tl.where(weight > 0, value, float("-inf"))
                here = tl.max(value, 0)
                if here > peak:
                    peak = here
                    chosen = tl.min(tl.where(value == here, v, 2147483647), 0)
        accepted = chosen == draft
        if noisy == 0:
            wanted, claim = own / total, tl.full((), 1.0, tl.float64)
            if DENSE:
                claim = tl.load(claims + draft, mask=draft >= 0, other=1.0).to(tl.float64)
            chance = tl.where(wanted >= claim, tl.where(wanted > 0, 1.0, 0.0), wanted / claim)
            accepted = (draft >= 0) & (tl.load(coin + row) < chance)
            chosen = draft
            if accepted == 0:
                chosen = _sample(
                    logits,
                    mask,
                    claims,
                    vocab,
                    draft,
                    top,
                    heat,
                    bound,
                    room,
                    least,
                    total,
                    tl.load(pick + row),
                    MASKED,
                    DENSE,
                    BLOCK,
                )
    tl.store(stands + row, accepted.to(tl.int32))
    tl.store(tokens + row, chosen)


@triton.jit
def _sample(
    logits,
    mask,
    claims,
    vocab,
    draft,
    top,
    heat,
    bound,
    room,
    least,
    total,
    uniform,
    MASKED: tl.constexpr,
    DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The token whose interval of the rest's distribution function holds ``uniform``: int32."""
    mass = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        mass += tl.sum(_rest(weight, total, v, draft, claims, vocab, DENSE), 0)
    whole = mass <= LEAST_RESIDUAL
    mass = tl.where(whole, 1.0, mass)
    chosen = tl.full((), 2147483647, tl.int32)
    final = tl.full((), 0, tl.int32)
    below = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        rest = _rest(weight, total, v, draft, claims, vocab, DENSE)
        rest = tl.where(whole, weight.to(tl.float64) / total, rest)
        reached = below + tl.cumsum(rest, 0)
        here = tl.where((reached > uniform * mass) & (rest > 0), v, 2147483647)
        chosen = tl.minimum(chosen, tl.min(here, 0))
        final = tl.maximum(final, tl.max(tl.where(rest > 0, v, 0), 0))
        below += tl.sum(rest, 0)
    return tl.where(chosen == 2147483647, final, chosen)


@triton.jit
def _first(stands, tokens, starts, counts, after, ROWS: tl.constexpr):
    """stands, tokens [R], starts [S+1] -> counts, after [S], int32; program: a sequence."""
    sequence = tl.program_id(0)
    first, last = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    i = tl.arange(0, ROWS)
    good = tl.load(stands + first + i, mask=first + i < last, other=0)
    count = tl.min(tl.where(good == 0, i, ROWS), 0)
    tl.store(counts + sequence, count)
    tl.store(after + sequence, tl.load(tokens + first + count))


def accept(chains: Chains) -> Decision:
    """See ``op.accept``. A chain has fewer rows than the batch's rows rounded up to 2^n."""
    rows, vocab = chains.logits.shape
    int32 = {"dtype": torch.int32, "device": chains.logits.device}
    stands, tokens = torch.empty(rows, **int32), torch.empty(rows, **int32)
    mask = chains.drafts if chains.mask is None else chains.mask
    claims = chains.coin if chains.draft_probs is None else chains.draft_probs
    launch(
        _decide,
        (rows,),
        *(chains.logits, mask, chains.drafts, claims),
        *(chains.temperature, chains.top_k, chains.top_p, chains.min_p),
        *(chains.seeded, chains.key, chains.coin, chains.pick),
        *(stands, tokens, chains.logits.stride(0), vocab, -(-vocab // 32)),
        MASKED=chains.mask is not None,
        DENSE=chains.draft_probs is not None,
        BLOCK=BLOCK,
        warps=WARPS,
    )
    sequences = len(chains.starts) - 1
    counts, after = torch.empty(sequences, **int32), torch.empty(sequences, **int32)
    block = triton.next_power_of_2(rows + 1)
    launch(_first, (sequences,), stands, tokens, chains.starts, counts, after, ROWS=block)
    return Decision(counts, after)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    base = dict.fromkeys(("drafts", "top_k", "seeded", "stands", "tokens", "mask"), "*i32")
    base |= dict.fromkeys(("temperature", "top_p", "min_p", "claims"), "*fp32")
    base |= {"key": "*i64", "coin": "*fp64", "pick": "*fp64"}
    base |= dict.fromkeys(("stride", "vocab", "words"), "i32")
    found = [
        Case(
            name=f"accept {dtype} {'masked' if masked else 'free'} {'dense' if dense else 'sure'}",
            kernel=_decide,
            signature=base | {"logits": f"*{dtype}"},
            constants={"MASKED": masked, "DENSE": dense, "BLOCK": BLOCK},
            aligned=("stride", "vocab"),
            warps=WARPS,
        )
        for dtype, masked, dense in (("bf16", True, True), ("fp32", True, False))
    ]
    names = ("stands", "tokens", "starts", "counts", "after")
    signature = dict.fromkeys(names, "*i32")
    found.append(
        Case(name="accept first", kernel=_first, signature=signature, constants={"ROWS": 64})
    )
    from . import tree_kernel

    return found + tree_kernel.cases()
