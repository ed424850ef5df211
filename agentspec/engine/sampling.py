"""Sampling parameters; the arithmetic from logits to target_probs is below them (to be written)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one sequence samples. temperature 0 is greedy.

    top_k 0 and top_p 1 and min_p 0 are off. seed None: rejection sampling with entropy of its own;
    given: position-keyed Gumbel noise, so that the text does not depend on drafts (arXiv 2408.07978).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
