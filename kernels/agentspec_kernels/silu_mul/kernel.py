"""``silu_mul`` and ``gelu_mul`` in Triton.

Legend: T packed tokens, M features of the feed-forward layer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch

BLOCK = 1024


@triton.jit
def _gated(gate_up, out, stride, features, BLOCK: tl.constexpr, GELU: tl.constexpr):
    """gate_up [T, 2M], out [T, M]; program (row, block of features). GELU: else SiLU.

    gelu(x) = x (1 + tanh(u)) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < features
    source = gate_up + row * stride + at
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + features, mask=inside, other=0.0).to(tl.float32)
    slope = gate
    if GELU:
        # The cube leaves exp's range soon; below -80 the gate is nothing anyway.
        slope = tl.maximum(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate), -80.0)
    result = gate / (1.0 + tl.exp(-slope)) * up
    tl.store(out + row * features + at, result.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[..., 2M] -> new [..., M] of the same dtype (float32, float16 or bfloat16)."""
    return gated(gate_up, gelu=False)


def gated(gate_up: Tensor, *, gelu: bool) -> Tensor:
    """The same with the gate that is asked for."""
    rows = gate_up.reshape(-1, gate_up.shape[-1])
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    features = rows.shape[1] // 2
    out = torch.empty((len(rows), features), dtype=rows.dtype, device=rows.device)
    grid = (len(rows), triton.cdiv(features, BLOCK))
    stride = rows.stride(0) if len(rows) > 1 else 2 * features
    launch(_gated, grid, rows, out, stride, features, BLOCK=BLOCK, GELU=gelu)
    return out.view(*gate_up.shape[:-1], features)


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    sizes = {"stride": "i32", "features": "i32"}
    return [
        Case(
            name=f"{name} {dtype}",
            kernel=_gated,
            signature={"gate_up": f"*{dtype}", "out": f"*{dtype}"} | sizes,
            constants={"BLOCK": BLOCK, "GELU": name == "gelu_mul"},
            aligned=("stride", "features"),
        )
        for name in ("silu_mul", "gelu_mul")
        for dtype in ("bf16", "fp32")
    ]
