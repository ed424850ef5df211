"""``grouped_linear`` in Triton, the same bits for a row whatever stands beside it.

Legend: S rows, K inputs, N outputs, X experts, C choices a source row, G tiles of ROWS rows.

Rows are sorted by expert on the device, and every expert's rows begin a tile: there are at most
S / ROWS + X tiles, and a program beyond the last one ends at once, so nothing waits for the host. A
tile has ROWS rows always, filled or not, and the sum over inputs has one order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentspec_kernels._gpu.aot import Case
from agentspec_kernels._gpu.launch import launch, operand

ROWS, COLUMNS, STEP = 16, 64, 64


@triton.jit
def _grouped(
    x,
    weight,
    order,
    firsts,
    ends,
    owners,
    out,
    stride,
    inputs,
    outputs,
    choices,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """x [S / C, K], weight [X, N, K], order [S] -> out [S, N]; program (columns, tile).

    firsts, owners [G]: a tile's first place in ``order`` and its expert (-1: no tile); ends [X]:
    where an expert's places end.
    """
    tile = tl.program_id(1)
    expert = tl.load(owners + tile)
    if expert >= 0:
        at = tl.load(firsts + tile) + tl.arange(0, ROWS)
        real = at < tl.load(ends + expert)
        row = tl.load(order + at, mask=real, other=0)
        n = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        base = weight + expert * outputs * inputs + n.to(tl.int64)[None, :] * inputs
        source = x + (row // choices)[:, None] * stride
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for begin in range(0, inputs, STEP):
            k = begin + tl.arange(0, STEP)
            a = tl.load(source + k[None, :], mask=real[:, None] & (k < inputs)[None, :], other=0.0)
            b = tl.load(
                base + k[:, None], mask=(n < outputs)[None, :] & (k < inputs)[:, None], other=0.0
            )
            total += tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision="ieee")
        to = out + row[:, None] * outputs + n[None, :]
        inside = real[:, None] & (n < outputs)[None, :]
        tl.store(to, total.to(out.dtype.element_ty), mask=inside)


def tiles(experts: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """experts [S], X -> order [S], firsts [G], ends [X], owners [G], all int64 on its device."""
    places = len(experts)
    known = torch.where((experts >= 0) & (experts < count), experts, count)
    order = known.argsort(stable=True)
    sizes = torch.zeros(count + 1, dtype=torch.int64, device=experts.device)
    sizes.scatter_add_(0, known, torch.ones_like(known))
    ends = sizes[:count].cumsum(0)
    needed = (sizes[:count] + ROWS - 1) // ROWS
    last = needed.cumsum(0)
    number = torch.arange(-(-places // ROWS) + count, device=experts.device)
    owners = torch.searchsorted(last, number, right=True)
    real, owner = owners < count, owners.clamp(max=count - 1)
    before = number - (last - needed)[owner]
    firsts = (ends - sizes[:count])[owner] + before * ROWS
    return order, firsts, ends, torch.where(real, owners, -1)


def grouped_linear(x: Tensor, weight: Tensor, experts: Tensor, choices: int) -> Tensor:
    """[S / C, K], [X, N, K], [S] -> new [S, N] of x's dtype (float32, float16 or bfloat16)."""
    if x.stride(1) != 1:
        x = x.contiguous()
    count, outputs, inputs = weight.shape
    out = torch.zeros((len(experts), outputs), dtype=x.dtype, device=x.device)
    order, firsts, ends, owners = tiles(experts, count)
    launch(
        _grouped,
        (triton.cdiv(outputs, COLUMNS), len(owners) if len(experts) else 0),
        *(x, weight.contiguous(), order, firsts, ends, owners, out),
        *(x.stride(0) if len(x) > 1 else inputs, inputs, outputs, choices),
        ROWS=ROWS,
        COLUMNS=COLUMNS,
        STEP=STEP,
        OPERAND=operand(x.dtype),
    )
    return out


def cases() -> list[Case]:
    """For ``_gpu/aot.py``."""
    sizes = dict.fromkeys(("stride", "inputs", "outputs", "choices"), "i32")
    tables = dict.fromkeys(("order", "firsts", "ends", "owners"), "*i64")
    blocks = {"ROWS": ROWS, "COLUMNS": COLUMNS, "STEP": STEP}
    return [
        Case(
            name=f"grouped_linear {dtype}",
            kernel=_grouped,
            signature={"x": f"*{dtype}", "weight": f"*{dtype}", "out": f"*{dtype}"}
            | tables
            | sizes,
            constants=blocks | {"OPERAND": operand(kind)},
            aligned=("stride", "inputs", "outputs"),
        )
        for dtype, kind in (("bf16", torch.bfloat16), ("fp32", torch.float32))
    ]
