"""The calls of ``kernels_gpu.py``: random operands of a model's sizes, ours and torch's way.

Legend: T rows, N features, M feed-forward size, H heads, J K/V heads, D head size, G tokens a page,
X experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from agentspec_kernels.accept import Chains, accept
from agentspec_kernels.grouped_linear import grouped_linear
from agentspec_kernels.kv_move import kv_append
from agentspec_kernels.linear import linear
from agentspec_kernels.linear_fp8 import linear_fp8
from agentspec_kernels.linear_w8 import linear_w8
from agentspec_kernels.paged_attention import PagedLayout, paged_attention
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope
from agentspec_kernels.silu_mul import silu_mul
from torch import Tensor
from torch.nn import functional as F

_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of Qwen3-8B; experts, expert_*: of Qwen3-30B-A3B. span: rows of one sequence that verifies
    drafts. page: G. group: inputs with one scale in ``linear_w8``."""

    hidden: int = 4096
    ffn: int = 12288
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    vocab: int = 151_936
    page: int = 16
    span: int = 8
    group: int = 128
    experts: int = 128
    choices: int = 8
    expert_hidden: int = 2048
    expert_ffn: int = 768
    dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Call:
    """ours, torch: the same by our Triton kernel and by torch, None where torch has no one way.
    bytes: what has to be read and written once."""

    ours: Callable[[], Tensor]
    torch: Callable[[], Tensor] | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    """attends: its calls have contexts. call: of (sizes, T, context, device)."""

    call: Callable[[Sizes, int, int, torch.device], Call]
    attends: bool = False


def _noise(sizes: Sizes, device: torch.device, *shape: int) -> Tensor:
    return torch.randn(*shape, device=device).to(sizes.dtype)


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _norm(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x, weight = _noise(sizes, device, rows, sizes.hidden), _noise(sizes, device, sizes.hidden)
    return Call(
        lambda: rms_norm(x, weight, _EPS, backend="triton"),
        lambda: F.rms_norm(x, (sizes.hidden,), weight, _EPS),
        _bytes(x, x, weight),
    )


def _rope(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, sizes.heads, sizes.head_size)
    angle = torch.rand(rows, sizes.head_size // 2, device=device)
    cos, sin = angle.cos(), angle.sin()
    return Call(
        lambda: rope(x, cos, sin, backend="triton"),
        lambda: rope(x, cos, sin, backend="reference"),
        _bytes(x, x, cos, sin),
    )


def _gate(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, 2 * sizes.ffn)
    return Call(
        lambda: silu_mul(x, backend="triton"),
        lambda: silu_mul(x, backend="torch"),
        _bytes(x) * 3 // 2,
    )


def _linear(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, sizes.hidden)
    weight = _noise(sizes, device, sizes.ffn, sizes.hidden)
    return Call(
        lambda: linear(x, weight, backend="exact"),
        lambda: F.linear(x, weight),
        _bytes(x, weight) + rows * sizes.ffn * x.element_size(),
    )


def _linear_w8(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, sizes.hidden)
    shape = sizes.ffn, sizes.hidden
    codes = torch.randint(-127, 128, shape, dtype=torch.int8, device=device)
    scale = torch.rand(sizes.ffn, sizes.hidden // sizes.group, device=device) / 100
    dense = (codes * scale.repeat_interleave(sizes.group, 1)).to(sizes.dtype)
    return Call(
        lambda: linear_w8(x, codes, scale, backend="triton"),
        lambda: F.linear(x, dense),
        _bytes(x, codes, scale) + rows * sizes.ffn * x.element_size(),
    )


def _linear_fp8(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, sizes.hidden)
    codes = torch.randn(sizes.ffn, sizes.hidden, device=device).to(torch.float8_e4m3fn)
    scale = torch.rand(sizes.ffn, 1, device=device) / 100
    dense = (codes.float() * scale).to(sizes.dtype)
    return Call(
        lambda: linear_fp8(x, codes, scale, backend="triton"),
        lambda: F.linear(x, dense),
        _bytes(x, codes, scale) + rows * sizes.ffn * x.element_size(),
    )


def _experts(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    x = _noise(sizes, device, rows, sizes.expert_hidden)
    weight = _noise(sizes, device, sizes.experts, sizes.expert_ffn, sizes.expert_hidden)
    drawn = torch.rand(rows, sizes.experts, device=device).topk(sizes.choices, 1).indices
    experts = drawn.reshape(-1)
    used = len(experts.unique())
    moved = _bytes(x) + used * weight[0].numel() * weight.element_size()
    moved += len(experts) * sizes.expert_ffn * x.element_size()
    return Call(
        lambda: grouped_linear(x, weight, experts, choices=sizes.choices, backend="triton"),
        lambda: grouped_linear(x, weight, experts, choices=sizes.choices, backend="torch"),
        moved,
    )


def _attention(sizes: Sizes, rows: int, context: int, device: torch.device) -> Call:
    """Rows in spans of ``span`` behind the same context each; torch reads keys in one piece."""
    span = min(sizes.span, rows)
    count, end = -(-rows // span), context + span
    pages = -(-end // sizes.page)
    tables = [range(i * pages, (i + 1) * pages) for i in range(count)]
    shape = count * pages, sizes.page, sizes.kv_heads, sizes.head_size
    keys, values = _noise(sizes, device, *shape), _noise(sizes, device, *shape)
    query = _noise(sizes, device, count * span, sizes.heads, sizes.head_size)
    layout = PagedLayout.build(
        [context] * count, [span] * count, tables, page_tokens=sizes.page, device=device
    )
    plain = [
        cache.view(count, pages * sizes.page, sizes.kv_heads, -1)[:, :end].transpose(1, 2)
        for cache in (keys, values)
    ]
    # [B, J, C, D] -> [B, H, C, D] as one view for each of a K/V head's queries.
    key, value = (
        part.repeat_interleave(sizes.heads // sizes.kv_heads, 1).contiguous() for part in plain
    )
    mask = torch.ones(span, end, dtype=torch.bool, device=device).tril(context)

    def stock() -> Tensor:
        spread = query.view(count, span, sizes.heads, -1).transpose(1, 2)
        found = F.scaled_dot_product_attention(spread, key, value, attn_mask=mask)
        return found.transpose(1, 2).reshape(query.shape)

    read = 2 * count * end * sizes.kv_heads * sizes.head_size * query.element_size()
    return Call(
        lambda: paged_attention(query, keys, values, layout, backend="triton"),
        stock,
        read + _bytes(query, query),
    )


def _append(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    pages = -(-rows // sizes.page)
    shape = pages, sizes.page, sizes.kv_heads, sizes.head_size
    keys, values = (torch.zeros(shape, dtype=sizes.dtype, device=device) for _ in "kv")
    key, value = (_noise(sizes, device, rows, sizes.kv_heads, sizes.head_size) for _ in "kv")
    slots = torch.randperm(pages * sizes.page, device=device)[:rows]

    def ours() -> Tensor:
        kv_append(keys, values, key, value, slots, backend="triton")
        return keys

    def stock() -> Tensor:
        for cache, new in ((keys, key), (values, value)):
            cache.view(-1, *cache.shape[2:])[slots] = new
        return keys

    return Call(ours, stock, 2 * _bytes(key, value))


def _accept(sizes: Sizes, rows: int, _: int, device: torch.device) -> Call:
    """Sampled at T = 1 with top_p; torch has no one way to do it."""
    logits = _noise(sizes, device, rows, sizes.vocab)
    starts = [*range(0, rows, sizes.span), rows]
    drafts = torch.randint(0, sizes.vocab, (rows,), dtype=torch.int32, device=device)
    drafts[torch.tensor(starts[1:], device=device) - 1] = -1
    zero = torch.zeros(rows, dtype=torch.int32, device=device)
    chains = Chains(
        logits=logits,
        starts=torch.tensor(starts, dtype=torch.int32, device=device),
        drafts=drafts,
        temperature=torch.ones(rows, device=device),
        top_k=zero,
        top_p=torch.full((rows,), 0.95, device=device),
        min_p=torch.zeros(rows, device=device),
        seeded=zero,
        key=torch.zeros(rows, dtype=torch.int64, device=device),
        coin=torch.rand(rows, dtype=torch.float64, device=device),
        pick=torch.rand(rows, dtype=torch.float64, device=device),
    )
    return Call(lambda: accept(chains, backend="triton").token, None, _bytes(logits))


CASES: dict[str, Case] = {
    "rms_norm": Case(_norm),
    "rope": Case(_rope),
    "silu_mul": Case(_gate),
    "linear": Case(_linear),
    "linear_w8": Case(_linear_w8),
    "linear_fp8": Case(_linear_fp8),
    "grouped_linear": Case(_experts),
    "paged_attention": Case(_attention, attends=True),
    "kv_append": Case(_append),
    "accept": Case(_accept),
}
