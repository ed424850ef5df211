"""What ``accept`` takes and gives.

Legend: S sequences, R rows of logits, V vocabulary, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Drafted chains and the target's logits; sequence s owns rows starts[s] .. starts[s+1] - 1.

    logits: [R, V] float32, float16 or bfloat16, biases and penalties already applied. starts: [S+1]
    int32. drafts: [R] int32, the token that the row tests; -1 in a sequence's last row.
    mask: [R, W] int32, bit v % 32 of word v // 32: token v is allowed; None: everything is.
    draft_probs: [R, V] float32 that a draft was drawn from; None: it was certain of it.
    temperature (0: greedy), top_p (1: off), min_p (0: off): [R] float32; top_k (0: off): [R] int32.
    seeded: [R] int32, nonzero where Gumbel noise chooses; key: [R] int64, ``gumbel.reference.key``
    of seed and position. coin, pick: [R] float64 in [0, 1): for acceptance, for sampling.
    """

    logits: Tensor
    starts: Tensor
    drafts: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeded: Tensor
    key: Tensor
    coin: Tensor
    pick: Tensor
    mask: Tensor | None = None
    draft_probs: Tensor | None = None

    def check(self) -> None:
        """Assert shapes and dtypes."""
        rows, vocab = self.logits.shape
        assert self.logits.stride(1) == 1 and self.starts.dtype == torch.int32
        for name in ("temperature", "top_p", "min_p"):
            assert getattr(self, name).dtype == torch.float32, name
        for name in ("drafts", "top_k", "seeded"):
            assert getattr(self, name).dtype == torch.int32, name
        for name in ("temperature", "top_p", "min_p", "drafts", "top_k", "seeded", "key"):
            assert getattr(self, name).shape == (rows,), name
        assert self.key.dtype == torch.int64 and self.coin.shape == self.pick.shape == (rows,)
        assert self.coin.dtype == self.pick.dtype == torch.float64
        if self.mask is not None:
            assert self.mask.shape == (rows, -(-vocab // 32)) and self.mask.dtype == torch.int32
            assert self.mask.is_contiguous()
        if self.draft_probs is not None:
            assert self.draft_probs.shape == (rows, vocab) and self.draft_probs.is_contiguous()
            assert self.draft_probs.dtype == torch.float32


@dataclass(frozen=True, slots=True)
class Decision:
    """count: [S] int32, drafts that stand. token: [S] int32, the one after them.

    token is -1 where the row it comes from allows nothing, or holds a score that is no number.
    """

    count: Tensor
    token: Tensor
