"""``rope`` in Triton: one program a row. Legend: T packed tokens, H heads, D head size."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch


@triton.jit
def _rope(
    x, cos, sin, out, row_stride, head_stride, heads, half, HEADS: tl.constexpr, HALF: tl.constexpr
):
    """x, out [T, H, D]; cos, sin [T, D/2]; HEADS, HALF: H and D/2 rounded up to powers of two."""
    row = tl.program_id(0).to(tl.int64)
    head, j = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (j < half)
    c = tl.load(cos + row * half + j, mask=j < half, other=0.0).to(tl.float32)
    s = tl.load(sin + row * half + j, mask=j < half, other=0.0).to(tl.float32)
    source = x + row * row_stride + head * head_stride + j
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
    to = out + (row * heads + head) * 2 * half + j
    tl.store(to, (first * c - second * s).to(out.dtype.element_ty), mask=inside)
    tl.store(to + half, (second * c + first * s).to(out.dtype.element_ty), mask=inside)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[T, H, D], two [T, D/2] -> new [T, H, D] of x's dtype (float32, float16 or bfloat16)."""
    if x.stride(2) != 1:
        x = x.contiguous()
    rows, heads, size = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    strides = x.stride(0), x.stride(1)
    blocks = {
        "HEADS": triton.next_power_of_2(heads),
        "HALF": triton.next_power_of_2(size // 2),
    }
    angles = cos.contiguous(), sin.contiguous()
    launch(_rope, (rows,), x, *angles, out, *strides, heads, size // 2, **blocks)
    return out


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    sizes = dict.fromkeys(("row_stride", "head_stride", "heads", "half"), "i32")
    return [
        Case(
            name=f"rope {dtype} {heads}x{2 * half}",
            kernel=_rope,
            signature={"x": f"*{dtype}", "out": f"*{dtype}", "cos": "*fp32", "sin": "*fp32"}
            | sizes,
            constants={"HEADS": heads, "HALF": half},
            aligned=("row_stride", "head_stride", "half"),
        )
        for dtype, heads, half in (("bf16", 16, 32), ("bf16", 32, 64), ("fp32", 32, 64))
    ]
