"""Llama (Touvron et al., arXiv 2302.13971) with grouped queries, on the kernels' ops.

Legend: T packed tokens, R rows whose logits are wanted, V vocabulary, E hidden size, D head size,
L layers, A tapped layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from agentspec_kernels.linear import linear
from agentspec_kernels.paged_attention import PagedLayout
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope_table
from torch import Tensor

from .config import ModelConfig, checked_taps
from .layers import Attention, FeedForward, Fused, KvCache, Rows, collect
from .weights import Checkpoint, awaiting, fill


class Llama:
    """A decoder whose weights are NaN until ``load``."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        taps: Sequence[int] = (),
        context_tokens: int | None = None,
    ):
        """taps: decoder layers (from 0) whose outputs ``forward`` returns as features.

        context_tokens: positions that may be used; None: all that the model was trained for.
        """
        self.config = config
        self.set_taps(taps)
        self.embedding = awaiting(config.vocab, config.hidden, dtype=dtype, device=device)
        self.layers = [_layer(config, dtype, device) for _ in range(config.layers)]
        self.norm = awaiting(config.hidden, dtype=dtype, device=device)
        self.lm_head = (
            self.embedding
            if config.tied
            else awaiting(config.vocab, config.hidden, dtype=dtype, device=device)
        )
        positions = context_tokens or config.context_tokens
        cos, sin = rope_table(
            positions,
            config.head_dim,
            config.rope_theta,
            scale=config.position_scale,
            device=device,
        )
        angles = torch.promote_types(dtype, torch.float32)
        self._cos, self._sin = cos.to(angles), sin.to(angles)

    def set_taps(self, taps: Sequence[int]) -> None:
        """The layers (from 0) whose outputs are features. Raises ``ValueError``."""
        self.taps = checked_taps(taps, self.config)

    def targets(self) -> dict[str, Tensor]:
        """Every weight under its checkpoint name, as a view that loading writes to."""
        found = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        if not self.config.tied:
            found["lm_head.weight"] = self.lm_head
        for index, (attention, feed_forward) in enumerate(self.layers):
            prefix = f"model.layers.{index}"
            found[f"{prefix}.input_layernorm.weight"] = attention.norm
            found[f"{prefix}.post_attention_layernorm.weight"] = feed_forward.norm
            for name, part in (attention.qkv.parts | attention.out.parts).items():
                found[f"{prefix}.self_attn.{name}.weight"] = part
            for name, part in (feed_forward.gate_up.parts | feed_forward.down.parts).items():
                found[f"{prefix}.mlp.{name}.weight"] = part
        return found

    def load(self, checkpoint: Checkpoint) -> None:
        """Fill every weight. Raises ``WeightsError`` naming what is missing or too much."""
        redundant = {n for n in checkpoint.names if n.endswith("rotary_emb.inv_freq")}
        if self.config.tied:
            redundant.add("lm_head.weight")
        fill(self.targets(), checkpoint, redundant=redundant)

    def forward(
        self, tokens: Tensor, layout: PagedLayout, caches: Sequence[KvCache]
    ) -> tuple[Tensor, Tensor | None]:
        """tokens [T] int64 -> hidden [T, E] before the last norm, and features [T, A*E] or None.

        Writes the rows' K and V to ``caches`` (one a layer) at the layout's slots.
        """
        rows = Rows(layout, self._cos[layout.positions], self._sin[layout.positions])
        x = F.embedding(tokens, self.embedding)
        tapped: dict[int, Tensor] = {}
        for index, (attention, feed_forward) in enumerate(self.layers):
            x = feed_forward(attention(x, rows, caches[index]))
            if index in self.taps:
                tapped[index] = x
        return x, collect([tapped[index] for index in self.taps])

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, E] of ``forward`` -> next-token logits [R, V] of the model's dtype."""
        return linear(rms_norm(hidden, self.norm, self.config.norm_eps), self.lm_head)


def _layer(
    config: ModelConfig, dtype: torch.dtype, device: torch.device | str
) -> tuple[Attention, FeedForward]:
    """One decoder layer, its weights awaiting load."""
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def fused(inputs: int, **sizes: int) -> Fused:
        return Fused(sizes, inputs, dtype, device)

    attention = Attention(
        norm=awaiting(config.hidden, dtype=dtype, device=device),
        qkv=fused(config.hidden, q_proj=query, k_proj=kv, v_proj=kv),
        out=fused(query, o_proj=config.hidden),
        heads=config.heads,
        kv_heads=config.kv_heads,
        eps=config.norm_eps,
    )
    feed_forward = FeedForward(
        norm=awaiting(config.hidden, dtype=dtype, device=device),
        gate_up=fused(config.hidden, gate_proj=config.ffn, up_proj=config.ffn),
        down=fused(config.ffn, down_proj=config.hidden),
        eps=config.norm_eps,
    )
    return attention, feed_forward
