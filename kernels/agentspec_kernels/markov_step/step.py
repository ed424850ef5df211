"""What ``markov_step`` takes and gives.

Legend: B sequences, U rows of draft logits, r Markov rank, K candidates, W = ceil(U / 32) words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """logits: [B, U] float32, float16 or bfloat16 of one row of each sequence's block.

    vector: [B, r] float32, what ``w2`` is multiplied with (the last token's row of W1, or a gate of
    it). w2: [U, r] int8 with ``w2_scale`` [U] float32. candidates: K, a power of two up to 128.
    mask: [B, W] int32 by row of logits, or None. target_id: [U] int32, ascending: the token of a
    row of logits; None: its own number.
    temperature (0: greedy), top_p, min_p: [B] float32; top_k: [B] int32; among the candidates.
    seeded: [B] int32, key: [B] int64 of the noise, pick: [B] float64 in [0, 1), as in ``accept``.
    """

    logits: Tensor
    vector: Tensor
    w2: Tensor
    w2_scale: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeded: Tensor
    key: Tensor
    pick: Tensor
    candidates: int = 128
    mask: Tensor | None = None
    target_id: Tensor | None = None

    def check(self) -> None:
        """Assert shapes and dtypes."""
        (rows, width), rank = self.logits.shape, self.vector.shape[1]
        assert self.logits.stride(1) == 1 and self.vector.is_contiguous()
        assert self.w2.shape == (width, rank) and self.w2.dtype == torch.int8
        assert self.w2_scale.shape == (width,) and self.w2.is_contiguous()
        assert self.candidates in (2, 4, 8, 16, 32, 64, 128)
        assert self.vector.dtype == self.w2_scale.dtype == torch.float32
        for name in ("temperature", "top_k", "top_p", "min_p", "seeded", "key", "pick"):
            assert getattr(self, name).shape == (rows,), name
        if self.mask is not None:
            assert self.mask.shape == (rows, -(-width // 32)) and self.mask.is_contiguous()


@dataclass(frozen=True, slots=True)
class Choice:
    """token: [B] int32, -1 where nothing is allowed.

    ids, probs: [B, K] int32 and float32, what it was drawn from, best first; -1 and 0 behind.
    """

    token: Tensor
    ids: Tensor
    probs: Tensor
