"""``linear``, ``linear_w8`` and ``linear_fp8`` in Triton: a row's bits are its own.

Legend: T packed tokens, K inputs, N outputs, S parts of PART inputs.

The sum over inputs is cut into parts, each summed from zero in steps of STEP, and the parts are
added in ascending order. For a few rows each part is another program's and a second kernel adds
them; for many rows one program does it all: the same operations, so the same bits. A tile has ROWS
rows always, filled or not: another tile might be another instruction with another order of sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch, operand

ROWS, COLUMNS, PART = 64, 64, 1024
STEP = 64
FEW = 64
"""Up to so many rows the parts are programs of their own."""


@triton.jit(do_not_specialize=["rows"])
def _linear(
    x,
    weight,
    scale,
    out,
    stride,
    rows,
    inputs,
    outputs,
    group,
    QUANTISED: tl.constexpr,
    FP8: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PART: tl.constexpr,
    STEP: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """x [T, K], weight [N, K] -> out [T, N], or (WHOLE False) a part's sums, out [S, T, N] float32.

    QUANTISED: scale [N, K / group] float32 of int8 weights, or (FP8) of e4m3 ones.
    Program (columns, rows, part).
    """
    n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    wide = t.to(tl.int64)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.program_id(2) * PART
    last = tl.minimum(first + PART, inputs)
    if WHOLE:
        last = inputs
    for part in range(first, last, PART):
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        for begin in range(part, tl.minimum(part + PART, inputs), STEP):
            k = begin + tl.arange(0, STEP)
            a = tl.load(
                x + wide[:, None] * stride + k[None, :],
                mask=(t < rows)[:, None] & (k < inputs)[None, :],
                other=0.0,
            )
            b = tl.load(
                weight + n.to(tl.int64)[None, :] * inputs + k[:, None],
                mask=(n < outputs)[None, :] & (k < inputs)[:, None],
                other=0,
            )
            if FP8:
                # By their bits, which every architecture can: e4m3's exponent is 8 below float16's.
                bits = b.to(tl.uint16)
                half = ((bits & 128) << 8) | ((bits & 127) << 7)
                b = half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
            product = tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision="ieee")
            if QUANTISED:
                at = n * (inputs // group) + begin // group
                product = product * tl.load(scale + at, mask=n < outputs, other=0.0)[None, :]
            sums += product
        total += sums
    inside = (t < rows)[:, None] & (n < outputs)[None, :]
    to = out + wide[:, None] * outputs + n[None, :]
    if not WHOLE:
        to += tl.program_id(2).to(tl.int64) * rows * outputs
    tl.store(to, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["size"])
def _add(parts, out, size, count, BLOCK: tl.constexpr):
    """parts [S, T * N] float32 -> out [T * N], added in ascending order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, count):
        total += tl.load(parts + tl.cast(part, tl.int64) * size + at, mask=at < size, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < size)


def linear(
    x: Tensor, weight: Tensor, scale: Tensor | None = None, *, few: int = FEW, part: int = PART
) -> Tensor:
    """[T, K], [N, K] -> new [T, N] of x's dtype (float32, float16 or bfloat16).

    scale: [N, K / G] float32 of an int8 or e4m3 weight, G = K or a multiple of 16. few:
    of which side of it T lies changes no bit; part: does, so it is the same for a whole run.
    """
    if x.stride(1) != 1:
        x = x.contiguous()
    (rows, inputs), outputs = x.shape, weight.shape[0]
    out = torch.empty((rows, outputs), dtype=x.dtype, device=x.device)
    parts = triton.cdiv(inputs, part)
    whole = parts == 1 or rows > few
    group = inputs if scale is None else inputs // scale.shape[1]
    fp8 = weight.dtype == torch.float8_e4m3fn
    weight = weight.view(torch.uint8) if fp8 else weight
    sums = out
    if not whole:
        sums = torch.empty((parts, rows, outputs), dtype=torch.float32, device=x.device)
    launch(
        _linear,
        (triton.cdiv(outputs, COLUMNS), triton.cdiv(rows, ROWS), 1 if whole else parts),
        *(x, weight.contiguous(), weight if scale is None else scale.contiguous(), sums),
        *(x.stride(0) if rows > 1 else inputs, rows, inputs, outputs, group),
        QUANTISED=scale is not None,
        FP8=fp8,
        WHOLE=whole,
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        PART=part,
        STEP=STEP if group == inputs else min(STEP, group & -group),
        OPERAND=operand(x.dtype),
    )
    if not whole:
        launch(_add, (triton.cdiv(out.numel(), 1024),), sums, out, out.numel(), parts, BLOCK=1024)
    return out


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    sizes = dict.fromkeys(("stride", "rows", "inputs", "outputs", "group"), "i32")
    found = []
    for name, weight, whole in (
        ("linear bf16 parts", "*bf16", False),
        ("linear bf16 whole", "*bf16", True),
        ("linear_w8 bf16 parts", "*i8", False),
        ("linear_w8 bf16 whole", "*i8", True),
        ("linear_fp8 bf16 parts", "*u8", False),
        ("linear_fp8 bf16 whole", "*u8", True),
    ):
        quantised = weight != "*bf16"
        out = "*bf16" if whole else "*fp32"
        scale = "*fp32" if quantised else weight
        blocks = {"ROWS": ROWS, "COLUMNS": COLUMNS, "PART": PART, "STEP": STEP}
        blocks |= {
            "QUANTISED": quantised,
            "FP8": weight == "*u8",
            "WHOLE": whole,
            "OPERAND": operand(torch.bfloat16),
        }
        signature = {"x": "*bf16", "weight": weight, "scale": scale, "out": out} | sizes
        aligned = ("stride", "inputs", "outputs", "group")
        found.append(
            Case(name=name, kernel=_linear, signature=signature, constants=blocks, aligned=aligned)
        )
    signature = {"parts": "*fp32", "out": "*bf16", "size": "i32", "count": "i32"}
    found.append(
        Case(name="linear add", kernel=_add, signature=signature, constants={"BLOCK": 1024})
    )
    return found
