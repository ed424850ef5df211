"""``accept_tree`` in Triton. Legend: as in ``trees.py``; B tokens of a block.

A row's program chooses among the rows below it, all rows at once: those that nothing leads to are
computed in vain, as rejected ones of a chain are. Then a program a sequence follows the path. What
the rejections leave of a target is never written: a token's part of it is worked out again from
the masses before it, which lie in a line of ``masses`` a row.
"""

# What is declared constexpr takes plain numbers.
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch

from .kernel import BLOCK, LEAST_RESIDUAL, WARPS, _best, _cut, _scores, _weights
from .noise import gumbel
from .trees import Path, Trees

NONE: tl.constexpr = tl.constexpr(2147483647)


@triton.jit
def _below(parents, row, after, rows, ROWS: tl.constexpr):
    """The next row below ``row`` that comes after row ``after``; NONE: there is no other."""
    i = tl.arange(0, ROWS)
    parent = tl.load(parents + i, mask=i < rows, other=-1)
    return tl.min(tl.where((parent == row) & (i > after), i, NONE), 0)


@triton.jit
def _left(probs, v, row, tried, parents, claims, masses, rows, vocab, ROWS: tl.constexpr):
    """Of the target's ``probs`` [B] float64 of tokens v, what ``tried`` rejections left."""
    kid = tl.zeros((), tl.int32) + row.to(tl.int32)
    for number in range(0, tried):
        kid = _below(parents, row, kid, rows, ROWS)
        mass = tl.load(masses + number)
        claim = tl.load(claims + kid.to(tl.int64) * vocab + v, mask=v < vocab, other=0.0)
        rest = tl.maximum(probs - claim.to(tl.float64), 0.0)
        probs = tl.where(mass > LEAST_RESIDUAL, rest / mass, probs)
    return probs


@triton.jit
def _summed(
    logits,
    mask,
    vocab,
    top,
    heat,
    bound,
    room,
    least,
    noisy,
    start,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The mass of the weights, float64; and the token that the noise chooses, if it is to."""
    total = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    peak = tl.full((), float("-inf"), tl.float64)
    chosen = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        total += tl.sum(weight.to(tl.float64), 0)
        if noisy:
            x = _scores(logits, mask, vocab, v, MASKED).to(tl.float64)
            value = (x - top.to(tl.float64)) / heat.to(tl.float64) + gumbel(start, v)
            value = tl.where(weight > 0, value, float("-inf"))
            here = tl.max(value, 0)
            if here > peak:
                peak = here
                chosen = tl.min(tl.where(value == here, v, NONE), 0)
    return total, chosen


@triton.jit
def _trial(
    logits,
    mask,
    claims,
    parents,
    masses,
    row,
    kid,
    token,
    tried,
    rows,
    vocab,
    top,
    heat,
    bound,
    room,
    least,
    total,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The chance that the token of row ``kid`` stands, and the mass that is left where it doesn't:
    float64 each. tried: of those below ``row``, how many were rejected before."""
    claims_here = claims + kid.to(tl.int64) * vocab
    wanted = tl.zeros((), tl.float64)
    mass = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        probs = weight.to(tl.float64) / total
        left = _left(probs, v, row, tried, parents, claims, masses, rows, vocab, ROWS)
        wanted += tl.sum(tl.where(v == token, left, 0.0), 0)
        own = tl.load(claims_here + v, mask=v < vocab, other=0.0)
        mass += tl.sum(tl.maximum(left - own.to(tl.float64), 0.0), 0)
    claim = tl.load(claims_here + token).to(tl.float64)
    sure = tl.where(wanted > 0, 1.0, 0.0)
    return tl.where(wanted >= claim, sure, wanted / claim), mass


@triton.jit
def _behind(parents, drafts, row, token, rows, ROWS: tl.constexpr):
    """The first row below ``row`` that lies behind ``token``; NONE: there is none."""
    i = tl.arange(0, ROWS)
    parent = tl.load(parents + i, mask=i < rows, other=-1)
    drafted = tl.load(drafts + i, mask=i < rows, other=-1)
    return tl.min(tl.where((parent == row) & (drafted == token), i, NONE), 0)


@triton.jit
def _branch(
    logits,
    mask,
    drafts,
    parents,
    claims,
    temperature,
    top_k,
    top_p,
    min_p,
    seeded,
    key,
    coin,
    pick,
    masses,
    follows,
    tokens,
    stride,
    vocab,
    words,
    rows,
    MASKED: tl.constexpr,
    DENSE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """follows, tokens [R] int32: the row below that stands, -1: none; the token that was chosen.
    masses [R, R] float64: scratch. Program: a row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    mask += row * words
    masses += row * rows
    heat = tl.load(temperature + row)
    top, best, bad = _best(logits, mask, vocab, MASKED, BLOCK)
    chosen, found = best, tl.full((), NONE, tl.int32)
    if (bad > 0) | (top == float("-inf")) | (top == float("inf")):
        chosen = -1
    else:
        if heat > 0:
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
            noisy = tl.load(seeded + row) != 0
            start = tl.load(key + row)
            total, own = _summed(
                logits, mask, vocab, top, heat, bound, room, least, noisy, start, MASKED, BLOCK
            )
            if noisy:
                chosen = own
            if noisy == 0:
                tried = tl.full((), 0, tl.int32)
                if DENSE:
                    kid = _below(parents, row, row.to(tl.int32), rows, ROWS)
                    while (kid != NONE) & (found == NONE):
                        token = tl.load(drafts + kid)
                        chance, mass = _trial(
                            logits,
                            mask,
                            claims,
                            parents,
                            masses,
                            row,
                            kid,
                            token,
                            tried,
                            rows,
                            vocab,
                            top,
                            heat,
                            bound,
                            room,
                            least,
                            total,
                            MASKED,
                            ROWS,
                            BLOCK,
                        )
                        if tl.load(coin + kid) < chance:
                            found = kid
                            chosen = token
                        else:
                            tl.store(masses + tried, mass)
                            tl.debug_barrier()
                            tried += 1
                            kid = _below(parents, row, kid, rows, ROWS)
                if found == NONE:
                    chosen = _sampled(
                        logits,
                        mask,
                        claims,
                        parents,
                        masses,
                        row,
                        tried,
                        rows,
                        vocab,
                        top,
                        heat,
                        bound,
                        room,
                        least,
                        total,
                        tl.load(pick + row),
                        MASKED,
                        ROWS,
                        BLOCK,
                    )
        if (found == NONE) & ((DENSE == 0) | (heat == 0) | (tl.load(seeded + row) != 0)):
            found = _behind(parents, drafts, row, chosen, rows, ROWS)
    tl.store(follows + row, tl.where(found == NONE, -1, found))
    tl.store(tokens + row, chosen)


@triton.jit
def _sampled(
    logits,
    mask,
    claims,
    parents,
    masses,
    row,
    tried,
    rows,
    vocab,
    top,
    heat,
    bound,
    room,
    least,
    total,
    uniform,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The token whose interval of the distribution function of what is left holds ``uniform``."""
    mass = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        probs = weight.to(tl.float64) / total
        mass += tl.sum(_left(probs, v, row, tried, parents, claims, masses, rows, vocab, ROWS), 0)
    chosen = tl.full((), NONE, tl.int32)
    final = tl.full((), 0, tl.int32)
    below = tl.zeros((), tl.float64)
    ties = tl.full((), 0, tl.int32)
    for begin in range(0, vocab, BLOCK):
        v = begin + tl.arange(0, BLOCK)
        weight, ties = _weights(logits, mask, vocab, v, ties, top, heat, bound, room, least, MASKED)
        probs = weight.to(tl.float64) / total
        left = _left(probs, v, row, tried, parents, claims, masses, rows, vocab, ROWS)
        reached = below + tl.cumsum(left, 0)
        here = tl.where((reached > uniform * mass) & (left > 0), v, NONE)
        chosen = tl.minimum(chosen, tl.min(here, 0))
        final = tl.maximum(final, tl.max(tl.where(left > 0, v, 0), 0))
        below += tl.sum(left, 0)
    return tl.where(chosen == NONE, final, chosen)


@triton.jit
def _follow(follows, tokens, starts, stands, counts, after):
    """Walk each sequence's path. Program: a sequence; stands [R] int32 begins as zeros."""
    sequence = tl.program_id(0)
    at = tl.load(starts + sequence)
    count = tl.full((), 0, tl.int32)
    tl.store(stands + at, 1)
    below = tl.load(follows + at)
    while below >= 0:
        at = below
        count += 1
        tl.store(stands + at, 1)
        below = tl.load(follows + at)
    tl.store(counts + sequence, count)
    tl.store(after + sequence, tl.load(tokens + at))


def accept_tree(trees: Trees) -> Path:
    """See ``op.accept_tree``."""
    given = trees.rows
    rows, vocab = given.logits.shape
    device = given.logits.device
    int32 = {"dtype": torch.int32, "device": device}
    follows, tokens = torch.empty(rows, **int32), torch.empty(rows, **int32)
    dense = given.draft_probs is not None
    scratch = rows if dense else 1
    masses = torch.empty(rows, scratch, dtype=torch.float64, device=device)
    launch(
        _branch,
        (rows,),
        *(given.logits, given.drafts if given.mask is None else given.mask),
        *(given.drafts, trees.parents, given.draft_probs if dense else given.coin),
        *(given.temperature, given.top_k, given.top_p, given.min_p),
        *(given.seeded, given.key, given.coin, given.pick),
        *(masses, follows, tokens),
        *(given.logits.stride(0), vocab, -(-vocab // 32), rows),
        MASKED=given.mask is not None,
        DENSE=dense,
        ROWS=triton.next_power_of_2(rows),
        BLOCK=BLOCK,
        warps=WARPS,
    )
    stands = torch.zeros(rows, **int32)
    sequences = len(given.starts) - 1
    counts, after = torch.empty(sequences, **int32), torch.empty(sequences, **int32)
    launch(_follow, (sequences,), follows, tokens, given.starts, stands, counts, after)
    return Path(counts, after, stands)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    ints = ("drafts", "parents", "top_k", "seeded", "mask", "follows", "tokens")
    base = dict.fromkeys(ints, "*i32") | {"key": "*i64"}
    base |= dict.fromkeys(("temperature", "top_p", "min_p", "claims"), "*fp32")
    base |= dict.fromkeys(("coin", "pick", "masses"), "*fp64")
    base |= dict.fromkeys(("stride", "vocab", "words", "rows"), "i32")
    found = [
        Case(
            name=f"accept tree {dtype} {'masked dense' if dense else 'free sure'}",
            kernel=_branch,
            signature=base | {"logits": f"*{dtype}"},
            constants={"MASKED": dense, "DENSE": dense, "ROWS": 64, "BLOCK": BLOCK},
            aligned=("stride", "vocab"),
            warps=WARPS,
        )
        for dtype, dense in (("bf16", True), ("fp32", False))
    ]
    names = ("follows", "tokens", "starts", "stands", "counts", "after")
    signature = dict.fromkeys(names, "*i32")
    return [*found, Case(name="accept path", kernel=_follow, signature=signature)]
