"""One way to start a Triton kernel, the same options as the ahead-of-time compile uses.

Imported by ``kernel.py`` files only: it loads Triton.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton import knobs

FUSION = {"enable_fp_fusion": False}
"""Products are rounded before they are added, as torch does it: Triton's default has changed from
one version to the next, and with it the bits."""


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any
) -> None:
    """Start ``kernel`` over ``grid``; nothing where the grid is empty."""
    if 0 not in grid:
        kernel[grid](*arguments, **constants, num_warps=warps, **FUSION)


def operand(dtype: torch.dtype) -> Any:
    """The type that a product's factors have: ``dtype``'s, in the interpreter float32.

    Triton 3.9's interpreter multiplies the bit patterns of bfloat16 as if they were integers; what
    was rounded to bfloat16 has the same products in float32.
    """
    if knobs.runtime.interpret:
        return tl.float32
    return {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}.get(dtype, tl.float32)
