"""Floating-point operations of training, from shapes: a budget that machines share. No torch.

A product of [m, k] and [k, n] is 2mkn; a trained matrix costs it three times (forward, gradient of
input and of weight), the frozen head and the first matrix (fc) twice, the target's head once.
Norms, softmax and attention scores are left out: under 3 % at these sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .spec import DraftSpec


@dataclass(frozen=True, slots=True)
class Work:
    """What a step did. context: tokens given as features; anchors; rows: supervised proposals;
    target_rows: rows whose target distribution was computed."""

    context: int
    anchors: int
    rows: int
    target_rows: int


def flops(spec: DraftSpec, work: Work) -> int:
    """Of one training step over ``work``."""
    t = spec.target
    query, kv = t.heads * t.head_dim, t.kv_heads * t.head_dim
    inputs = t.hidden * (2 if spec.method == "eagle3" else 1)
    key_value = 2 * inputs * kv
    row = inputs * query + query * t.hidden + key_value + 3 * t.hidden * t.ffn
    block_rows = work.anchors * spec.block_size
    trained = spec.layers * (block_rows * row + work.context * key_value)
    trained += work.rows * spec.markov_rank * spec.logit_rows
    twice = spec.logit_rows * t.hidden * work.rows
    if spec.method == "mtp":
        trained += 2 * t.hidden * t.hidden * (work.context + block_rows)
    else:
        twice += len(spec.target_layer_ids) * t.hidden * t.hidden * work.context
    return 2 * (3 * trained + 2 * twice + t.vocab * t.hidden * work.target_rows)
