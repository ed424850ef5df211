"""Qwen3-MoE and Qwen3-Coder (arXiv 2505.09388): a Qwen3 with a mixture of experts in most layers.

Experts are split over ranks whole; the router is on every rank.
"""

from __future__ import annotations

from .decoder import Block
from .experts import SparseFeedForward
from .llama import Llama


class Qwen3Moe(Llama):
    """See ``Decoder``."""

    def feed_forward(self, prefix: str, index: int) -> Block:
        """See ``Decoder``."""
        experts, hidden = self.config.experts, self.config.hidden
        assert experts is not None
        if index in experts.dense:
            return super().feed_forward(prefix, index)
        first, last = self.build.shard.part("experts", experts.count)
        gate_up = self.build.empty(last - first, 2 * experts.ffn, hidden)
        down = self.build.empty(last - first, hidden, experts.ffn)
        for expert in range(first, last):
            own, stem = expert - first, f"{prefix}mlp.experts.{expert}."
            self.know(f"{stem}gate_proj.weight", gate_up[own, : experts.ffn])
            self.know(f"{stem}up_proj.weight", gate_up[own, experts.ffn :])
            self.know(f"{stem}down_proj.weight", down[own])
        self.others(f"{prefix}mlp.experts.", first, last, experts.count)
        return SparseFeedForward(
            norm=self.normed(prefix + "post_attention_layernorm.weight", hidden),
            router=self.know(prefix + "mlp.gate.weight", self.build.empty(experts.count, hidden)),
            gate_up=gate_up,
            down=down,
            first=first,
            experts=experts,
            build=self.build,
        )

    def others(self, prefix: str, first: int, last: int, count: int) -> None:
        """Experts that other ranks have: in the checkpoint, not read here."""
        for expert in (*range(first), *range(last, count)):
            names = ("gate_proj", "up_proj", "down_proj")
            self.elsewhere.update(f"{prefix}{expert}.{name}.weight" for name in names)
