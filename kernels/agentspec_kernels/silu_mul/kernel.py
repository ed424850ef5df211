"""``silu_mul`` in Triton. Legend: T packed tokens, M features of the feed-forward layer."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch

BLOCK = 1024


@triton.jit
def _silu_mul(gate_up, out, stride, features, BLOCK: tl.constexpr):
    """gate_up [T, 2M], out [T, M]; program (row, block of features)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < features
    source = gate_up + row * stride + at
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + features, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * features + at, result.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[..., 2M] -> new [..., M] of the same dtype (float32, float16 or bfloat16)."""
    rows = gate_up.reshape(-1, gate_up.shape[-1])
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    features = rows.shape[1] // 2
    out = torch.empty((len(rows), features), dtype=rows.dtype, device=rows.device)
    grid = (len(rows), triton.cdiv(features, BLOCK))
    launch(_silu_mul, grid, rows, out, rows.stride(0), features, BLOCK=BLOCK)
    return out.view(*gate_up.shape[:-1], features)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    sizes = {"stride": "i32", "features": "i32"}
    return [
        Case(
            name=f"silu_mul {dtype}",
            kernel=_silu_mul,
            signature={"gate_up": f"*{dtype}", "out": f"*{dtype}"} | sizes,
            constants={"BLOCK": BLOCK},
            aligned=("stride", "features"),
        )
        for dtype in ("bf16", "fp32")
    ]
