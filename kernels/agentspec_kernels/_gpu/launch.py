"""One way to start a Triton kernel, the same options as the ahead-of-time compile uses."""

from __future__ import annotations

from typing import Any

FUSION = {"enable_fp_fusion": False}
"""Products are rounded before they are added, as torch does it: Triton's default has changed from
one version to the next, and with it the bits."""


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **constants: Any
) -> None:
    """Start ``kernel`` over ``grid``; nothing where the grid is empty."""
    if 0 not in grid:
        kernel[grid](*arguments, **constants, num_warps=warps, **FUSION)
