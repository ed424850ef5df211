"""The definition of ``rope``. Legend: T packed tokens, H heads, D head size, C positions.

Half-rotation: feature j of the first half and feature j of the second half are one complex number,
turned by position * theta^(-2j/D). (The other layout in use pairs neighbours; a checkpoint of that
kind has its rows permuted when it is loaded.)
"""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(
    positions: int,
    head_dim: int,
    theta: float,
    *,
    scale: float = 1.0,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """cos and sin, each [C, D/2] float64, of the angles of positions 0 .. C-1, over ``scale``.

    float64 on purpose: in float32 the angle of position 8,000 is off by 5e-4.
    """
    assert head_dim % 2 == 0
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim
    places = torch.arange(positions, dtype=torch.float64, device=device) / scale
    angles = torch.outer(places, theta**-exponents)
    return angles.cos(), angles.sin()


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn ``x`` [T, H, D] by the angles of its rows: cos, sin [T, D/2] -> [T, H, D] of x's dtype.

    Products in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    cos, sin = cos.to(wide.dtype)[:, None], sin.to(wide.dtype)[:, None]
    first, second = wide.chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)
