"""One decoder layer of the target's geometry, split so that context rows give K and V alone.

Legend: R rows, C context rows, E hidden size, I inputs of q, k, v, H heads, J K/V heads, D head
size, F feed-forward size. All float, of one dtype outside autocast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentspec.engine.model.config import ModelConfig


class Norm(nn.Module):
    """Root mean square norm with a weight [E], computed in float32 or wider."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., E] -> the same, of the weight's dtype."""
        wide = x.to(self.weight.dtype)
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions, halves apart. x [R, heads, D], angles [R, D/2] -> [R, heads, D].

    Computed and returned in float32, or in float64 where x is.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    low, high = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def rope_angles(config: ModelConfig, positions: Tensor) -> Tensor:
    """positions [R] int64 -> [R, D/2] float64."""
    half = torch.arange(config.head_dim // 2, dtype=torch.float64, device=positions.device)
    speeds = config.rope_theta ** (-2 * half / config.head_dim)
    return positions.double()[:, None] / config.position_scale * speeds


class Attention(nn.Module):
    """Grouped-query attention over rows that the caller chooses."""

    def __init__(self, config: ModelConfig, *, inputs: int, qk_norm: bool):
        super().__init__()
        query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.q_proj = nn.Linear(inputs, query, bias=False)
        self.k_proj = nn.Linear(inputs, kv, bias=False)
        self.v_proj = nn.Linear(inputs, kv, bias=False)
        self.o_proj = nn.Linear(query, config.hidden, bias=False)
        if qk_norm:
            self.q_norm = Norm(config.head_dim, config.norm_eps)
            self.k_norm = Norm(config.head_dim, config.norm_eps)
        self.qk_norm = qk_norm

    def query(self, x: Tensor, angles: Tensor) -> Tensor:
        """x [R, I] -> rotated queries [R, H, D]."""
        q = self.q_proj(x).view(len(x), self.heads, -1)
        return rotate(self.q_norm(q) if self.qk_norm else q, angles)

    def key_value(self, x: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
        """x [R, I] -> rotated keys and values, [R, J, D] each."""
        k = self.k_proj(x).view(len(x), self.kv_heads, -1)
        v = self.v_proj(x).view(len(x), self.kv_heads, -1)
        return rotate(self.k_norm(k) if self.qk_norm else k, angles), v.to(k.dtype)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        """q [R, H, D], k, v [C, J, D], seen [R, C] bool -> [R, H*D], before the projection."""
        group = self.heads // self.kv_heads
        k = k.to(q.dtype).repeat_interleave(group, 1).transpose(0, 1)
        v = v.to(q.dtype).repeat_interleave(group, 1).transpose(0, 1)
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None], seen)
        return out[0].transpose(0, 1).reshape(len(q), -1)


class FeedForward(nn.Module):
    """SwiGLU E -> F -> E."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm decoder layer; ``pair_norm`` adds EAGLE-3's second norm, for 2E inputs."""

    def __init__(self, config: ModelConfig, *, qk_norm: bool, pair_norm: bool = False):
        super().__init__()
        inputs = config.hidden * (2 if pair_norm else 1)
        self.self_attn = Attention(config, inputs=inputs, qk_norm=qk_norm)
        self.mlp = FeedForward(config)
        self.input_layernorm = Norm(config.hidden, config.norm_eps)
        self.post_attention_layernorm = Norm(config.hidden, config.norm_eps)
        if pair_norm:
            self.hidden_norm = Norm(config.hidden, config.norm_eps)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """x [R, E] the residual stream, mixed [R, E] the projected attention -> [R, E]."""
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


def init_weights(net: nn.Module, std: float = 0.02) -> None:
    """Draw every matrix from N(0, std^2) and zero every bias; norms stay ones."""
    for name, weight in net.named_parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=std)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
