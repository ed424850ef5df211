"""A feed-forward of many, of which a router chooses some for each token.

Legend: T packed tokens, E hidden size, X experts (x of them on this rank), C chosen for a token, M
feed-forward size of one expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from agentspec_kernels.grouped_linear import grouped_linear
from agentspec_kernels.linear import linear
from agentspec_kernels.silu_mul import silu_mul
from torch import Tensor

from .config import Experts
from .layers import Build, Norm, product


@dataclass(frozen=True, slots=True)
class SparseFeedForward:
    """router [X, E]; gate_up [x, 2M, E], gate first; down [x, E, M]. first: number of this rank's
    first expert: each rank has whole ones, every rank the router."""

    norm: Norm
    router: Tensor
    gate_up: Tensor
    down: Tensor
    first: int
    experts: Experts
    build: Build

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, E] plus its feed-forward -> [T, E]."""
        backend, shard = product(self.build), self.build.shard
        normed = self.norm(x)
        weights, chosen = self.route(normed)
        mine = (chosen - self.first).flatten()
        gated = silu_mul(
            grouped_linear(
                normed, self.gate_up, mine, choices=self.experts.per_token, backend=backend
            )
        )
        found = grouped_linear(gated, self.down, mine, backend=backend)
        found = found.view(*chosen.shape, -1)
        if shard.exact:
            # Every row has one rank that isn't zero: no sum is split.
            found = shard.summed(found)
        wide = torch.promote_types(x.dtype, torch.float32)
        added = found[:, 0].to(wide) * weights[:, :1]
        for choice in range(1, self.experts.per_token):
            added = added + found[:, choice].to(wide) * weights[:, choice : choice + 1]
        added = added.to(x.dtype)
        return x + (added if shard.exact else shard.summed(added))

    def route(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """[T, E] -> weights [T, C] (float32, float64 of a float64 model), experts [T, C] int64."""
        logits = linear(normed, self.router, backend=product(self.build))
        wide = torch.promote_types(logits.dtype, torch.float32)
        weights, chosen = logits.to(wide).softmax(-1).topk(self.experts.per_token, -1)
        if self.experts.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(normed.dtype).to(wide), chosen
