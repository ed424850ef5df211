"""Parts that decoder models share: fused weights, and one attention and one feed-forward block.

Legend: T packed tokens, E hidden size, M feed-forward size, H heads, J K/V heads, D head size (H, J
and M of one rank), P pages of G tokens, N outputs of one tensor of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from agentspec_kernels.kv_move import kv_append
from agentspec_kernels.linear import linear
from agentspec_kernels.paged_attention import PagedLayout, paged_attention
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope
from torch import Tensor

from .shard import WHOLE, Shard, Slice
from .weights import awaiting


@dataclass(frozen=True, slots=True)
class KvCache:
    """K and V of one layer: two tensors [P, G, J, D] of one dtype."""

    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """What every layer needs to know of the packed rows.

    turns: cos and sin [T, D/2] for layers that see everything, and for those that see a window.
    """

    layout: PagedLayout
    turns: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Build:
    """How a model's weights are made: their dtype, where they lie, and this rank's part."""

    dtype: torch.dtype
    device: torch.device | str = "cpu"
    shard: Shard = WHOLE

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A weight that awaits its load, NaN."""
        return awaiting(*shape, dtype=dtype or self.dtype, device=self.device)


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm. weight [N]."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """[..., N] -> [..., N]."""
        return rms_norm(x, self.weight, self.eps)


class Fused:
    """Linear layers over the same input, kept as one weight [sum of N, K]: one product runs.

    slices: where the parts that this rank holds only a part of lie in the checkpoint.
    """

    __slots__ = ("_backend", "parts", "slices", "weight")

    def __init__(
        self,
        sizes: Mapping[str, int],
        inputs: int,
        build: Build,
        slices: Mapping[str, Slice] | None = None,
    ):
        """sizes: N of each part on this rank, by name, in row order."""
        self.weight = build.empty(sum(sizes.values()), inputs)
        views = self.weight.split(list(sizes.values()))
        self.parts: dict[str, Tensor] = dict(zip(sizes, views, strict=True))
        self.slices: Mapping[str, Slice] = slices or {}
        self._backend = product(build)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, sum of N]."""
        return linear(x, self.weight, backend=self._backend)


class Output:
    """The product behind split features: [T, N / R] of each rank -> [T, E], whole on all ranks."""

    __slots__ = ("_shard", "fused")

    def __init__(self, name: str, features: int, outputs: int, build: Build):
        """features, outputs: over all ranks together. Raises ``UnsupportedModel``."""
        self._shard = shard = build.shard
        if shard.exact:
            rows = shard.part("outputs", outputs)
            sizes, inputs, where = {name: rows[1] - rows[0]}, features, Slice(0, *rows, outputs)
        else:
            columns = shard.part("features", features)
            inputs, where = columns[1] - columns[0], Slice(1, *columns, features)
            sizes = {name: outputs}
        self.fused = Fused(sizes, inputs, build, {name: where} if shard.ranks > 1 else None)

    def __call__(self, x: Tensor, *, whole: bool = False) -> Tensor:
        """[T, N / R] -> [T, E]. whole: x is what ``beside`` made."""
        if self._shard.exact:
            every = x if whole else self._shard.gathered(x)
            return self._shard.gathered(self.fused(every))
        return self._shard.summed(self.fused(x))

    def beside(self, pair: Tensor) -> Tensor:
        """Two outputs of each feature, [T, 2N / R], as [T, 2N] of all ranks where no sum is split.

        torch's own exponentials differ by where in memory a value lies, so that a gate over a part
        of the features hasn't the bits of one over all.
        """
        ranks = self._shard.ranks
        if not self._shard.exact or ranks == 1:
            return pair
        every = self._shard.gathered(pair).unflatten(-1, (ranks, 2, -1))
        return every.transpose(1, 2).flatten(1)


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention with rotary positions. qkv E -> (H + 2J)D; out HD -> E.

    head_norms: of each head of q and of k; after: a norm of what is added to the rows. scale: of
    the scores. window: rows see their last positions only, and turn by the second angles.
    """

    norm: Norm
    qkv: Fused
    out: Output
    heads: int
    kv_heads: int
    head_norms: tuple[Norm, Norm] | None = None
    after: Norm | None = None
    scale: float | None = None
    window: int | None = None

    def __call__(self, x: Tensor, rows: Rows, cache: KvCache) -> Tensor:
        """x [T, E] plus its attention -> [T, E]; writes the rows' K and V to ``cache``."""
        fused = self.qkv(self.norm(x))
        fused = fused.view(x.shape[0], self.heads + 2 * self.kv_heads, -1)
        both, value = fused.split([self.heads + self.kv_heads, self.kv_heads], 1)
        if self.head_norms is not None:
            query, key = both.split([self.heads, self.kv_heads], 1)
            both = torch.cat((self.head_norms[0](query), self.head_norms[1](key)), 1)
        turned = rope(both, *rows.turns[self.window is not None])
        kv_append(cache.key, cache.value, turned[:, self.heads :], value, rows.layout.slots)
        mixed = paged_attention(
            turned[:, : self.heads],
            cache.key,
            cache.value,
            rows.layout,
            scale=self.scale,
            window=self.window,
        )
        added = self.out(mixed.reshape(x.shape[0], -1))
        return x + (added if self.after is None else self.after(added))


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A gated feed-forward. gate_up E -> 2M, gate first; gate: [T, 2M] -> [T, M]; down M -> E.

    after: a norm of what is added to the rows.
    """

    norm: Norm
    gate_up: Fused
    down: Output
    gate: Callable[[Tensor], Tensor]
    after: Norm | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, E] plus its feed-forward -> [T, E]."""
        pair = self.down.beside(self.gate_up(self.norm(x)))
        added = self.down(self.gate(pair), whole=True)
        return x + (added if self.after is None else self.after(added))


def product(build: Build) -> str | None:
    """Which backend of ``linear`` has bits that don't depend on how many outputs there are."""
    if not build.shard.exact:
        return None
    return "exact" if torch.device(build.device).type == "cuda" else "ordered"


def collect(outputs: Sequence[Tensor]) -> Tensor | None:
    """Tapped layers' outputs, each [T, E], side by side: [T, len(outputs) * E]; None for none."""
    return torch.cat(list(outputs), -1) if outputs else None
