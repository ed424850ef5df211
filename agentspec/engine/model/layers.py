"""Parts that decoder models share: fused weights, and one attention and one feed-forward block.

Legend: T packed tokens, E hidden size, M feed-forward size, H heads, J K/V heads, D head size,
P pages of G tokens, N outputs of one tensor of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from agentspec_kernels.linear import linear
from agentspec_kernels.paged_attention import PagedLayout, paged_attention, write_pages
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope
from agentspec_kernels.silu_mul import silu_mul
from torch import Tensor

from .weights import awaiting


@dataclass(frozen=True, slots=True)
class KvCache:
    """K and V of one layer: two tensors [P, G, J, D] of one dtype."""

    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """What every layer needs to know of the packed rows: layout, and cos, sin [T, D/2]."""

    layout: PagedLayout
    cos: Tensor
    sin: Tensor


class Fused:
    """Linear layers over the same input, kept as one weight [sum of N, K]: one product runs."""

    __slots__ = ("parts", "weight")

    def __init__(
        self, sizes: dict[str, int], inputs: int, dtype: torch.dtype, device: torch.device | str
    ):
        """sizes: N of each part, by name, in row order."""
        self.weight = awaiting(sum(sizes.values()), inputs, dtype=dtype, device=device)
        views = self.weight.split(list(sizes.values()))
        self.parts: dict[str, Tensor] = dict(zip(sizes, views, strict=True))

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, sum of N]."""
        return linear(x, self.weight)


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention with rotary positions. norm [E]; qkv E -> (H + 2J)D; out HD -> E."""

    norm: Tensor
    qkv: Fused
    out: Fused
    heads: int
    kv_heads: int
    eps: float

    def __call__(self, x: Tensor, rows: Rows, cache: KvCache) -> Tensor:
        """x [T, E] plus its attention -> [T, E]; writes the rows' K and V to ``cache``."""
        fused = self.qkv(rms_norm(x, self.norm, self.eps))
        fused = fused.view(x.shape[0], self.heads + 2 * self.kv_heads, -1)
        value = fused[:, self.heads + self.kv_heads :]
        turned = rope(fused[:, : self.heads + self.kv_heads], rows.cos, rows.sin)
        write_pages(cache.key, turned[:, self.heads :], rows.layout)
        write_pages(cache.value, value, rows.layout)
        mixed = paged_attention(turned[:, : self.heads], cache.key, cache.value, rows.layout)
        return x + self.out(mixed.reshape(x.shape[0], -1))


@dataclass(frozen=True, slots=True)
class FeedForward:
    """SwiGLU. norm [E]; gate_up E -> 2M, gate first; down M -> E."""

    norm: Tensor
    gate_up: Fused
    down: Fused
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, E] plus its feed-forward -> [T, E]."""
        return x + self.down(silu_mul(self.gate_up(rms_norm(x, self.norm, self.eps))))


def collect(outputs: Sequence[Tensor]) -> Tensor | None:
    """Tapped layers' outputs, each [T, E], side by side: [T, len(outputs) * E]; None for none."""
    return torch.cat(list(outputs), -1) if outputs else None
