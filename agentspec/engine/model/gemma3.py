"""Gemma 3 (arXiv 2503.19786), text only: five layers of six see a window of the context.

Beside a Llama: norms before and after each block, whose weights are stored less one; GELU;
embeddings times the root of the hidden size; angles of their own for layers with a window.

Legend: T packed tokens, E hidden size.
"""

from __future__ import annotations

from dataclasses import replace

from agentspec_kernels.gelu_mul import gelu_mul
from torch import Tensor

from .decoder import Block, Decoder
from .layers import Attention, FeedForward
from .shard import Slice


class Gemma3(Decoder):
    """See ``Decoder``. No ``Llama``: drafts would take its embeddings without their factor."""

    offset_norms = True

    def embedded(self, tokens: Tensor) -> Tensor:
        """tokens [T] int64 -> [T, E]; the factor is rounded to the weights' dtype, as published."""
        x = super().embedded(tokens)
        return x * x.new_tensor(self.config.hidden**0.5)

    def attention(self, prefix: str, index: int) -> Attention:
        """See ``Decoder``."""
        after = self.normed(prefix + "post_attention_layernorm.weight", self.config.hidden)
        return replace(super().attention(prefix, index), after=after)

    def feed_forward(self, prefix: str, index: int) -> Block:
        """See ``Decoder``."""
        ffn, hidden = self.config.ffn, self.config.hidden
        mine = Slice(0, *self.build.shard.part("features", ffn), ffn)
        return FeedForward(
            norm=self.normed(prefix + "pre_feedforward_layernorm.weight", hidden),
            gate_up=self.fused(prefix + "mlp.", hidden, gate_proj=mine, up_proj=mine),
            down=self.output(prefix + "mlp.down_proj", ffn),
            gate=gelu_mul,
            after=self.normed(prefix + "post_feedforward_layernorm.weight", hidden),
        )
