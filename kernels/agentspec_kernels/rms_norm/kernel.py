"""``rms_norm`` in Triton: one program a row. Legend: T packed tokens, N features of one token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch


@triton.jit
def _rms_norm(x, weight, out, stride, features, eps, BLOCK: tl.constexpr):
    """x, out [T, N], weight [N]; a row's sum is its own, whatever rows stand beside it."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < features
    values = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / features + eps)
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    result = values * scale * factor
    tl.store(out + row * features + at, result.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[..., N], [N] -> new [..., N] of x's dtype (float32, float16 or bfloat16)."""
    rows = x.reshape(-1, x.shape[-1])
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    features = rows.shape[1]
    block = triton.next_power_of_2(features)
    # The stride of a single row is arbitrary, and Triton compiles by what divides it.
    sizes = rows.stride(0) if len(rows) > 1 else features, features, eps
    launch(_rms_norm, (len(rows),), rows, weight.contiguous(), out, *sizes, BLOCK=block)
    return out.view(x.shape)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    signature = {"stride": "i32", "features": "i32", "eps": "fp32"}
    return [
        Case(
            name=f"rms_norm {dtype} {block}",
            kernel=_rms_norm,
            signature=dict.fromkeys(("x", "weight", "out"), f"*{dtype}") | signature,
            constants={"BLOCK": block},
            aligned=("stride", "features"),
        )
        for dtype, block in (("bf16", 1024), ("bf16", 4096), ("fp32", 4096))
    ]
