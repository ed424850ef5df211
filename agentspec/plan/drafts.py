"""Drafts by what they cost: weights, K/V a token, and the bytes and operations of one round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .shape import Shape

TAPS = 5
MARKOV_RANK = 256
EAGLE_VOCAB = 32_000


@dataclass(frozen=True, slots=True)
class Draft:
    """kind: "dspark" (a block in one pass), "eagle3" or "model" (a pass for each token).

    most: tokens of a round. shape: its layers; its head is the target's where ``shared_head``.
    extra_bytes: weights beside the layers; step_bytes: what each drafted token of a block reads in
    turn (the Markov head's second matrix).
    """

    kind: Literal["dspark", "eagle3", "model"]
    most: int
    shape: Shape
    shared_head: bool
    extra_bytes: float = 0.0
    step_bytes: float = 0.0

    @property
    def weight_bytes(self) -> float:
        """What it adds to the target's."""
        if not self.shared_head:
            return self.shape.total_bytes + self.extra_bytes
        tables = (1 if self.shape.tied else 2) * self.shape.head_params
        return self.shape.total_bytes - tables * self.shape.weight_bytes + self.extra_bytes

    def kv_request_bytes(self, context: int) -> float:
        return self.shape.kv_request_bytes(context)

    def passes(self, tokens: int) -> int:
        return 1 if self.kind == "dspark" else tokens

    def rows(self, tokens: int) -> int:
        """Of one sequence, in each of its passes."""
        return tokens if self.kind == "dspark" else 1


def smaller(shape: Shape, most: int) -> Draft:
    """A smaller model of the same tokenizer."""
    return Draft("model", most, shape, shared_head=False)


def block(target: Shape, layers: int, most: int, native: bool = False) -> Draft:
    """DSpark: so many layers of the target's own geometry, dense (DeepSpec), or its own stages with
    experts and windowed attention (``native``, DeepSeek-V4); fc of five taps, Markov head of rank
    256 (research on the paper and DeepSpec's checkpoints: arXiv 2607.05147)."""
    if native:
        shape = replace(target, name="native stages", layers=layers, ratios=(0,) * layers)
    else:
        shape = replace(
            target,
            name=f"DSpark of {layers} layers",
            layers=layers,
            experts=0,
            active=0,
            shared=0,
            dense_layers=0,
            full_layers=None,
            weight_bytes=2.0,
        )
    markov = target.vocab * MARKOV_RANK * 2.0
    taps = 3 if native else TAPS
    projection = taps * target.hidden * target.hidden * shape.weight_bytes
    return Draft("dspark", most, shape, True, projection + 2 * markov, markov)


def head(target: Shape, most: int) -> Draft:
    """EAGLE-3: one dense layer whose input is twice as wide, a head of 32,000 tokens of its own,
    three taps (SpecForge's and vLLM's layout)."""
    shape = replace(
        target,
        name="EAGLE-3",
        layers=1,
        experts=0,
        active=0,
        shared=0,
        dense_layers=0,
        full_layers=None,
        vocab=EAGLE_VOCAB,
        width=max(target.width, 3 * target.hidden),
        tied=True,
        weight_bytes=2.0,
    )
    more = 3 * target.hidden**2 + target.hidden * (target.heads + 2 * target.kv_heads) * (
        target.head_dim
    )
    return Draft("eagle3", most, shape, False, more * 2.0)
