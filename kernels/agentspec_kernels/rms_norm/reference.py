"""The definition of ``rms_norm``. Legend: T packed tokens, N features of one token."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight: [T, N], [N] -> [T, N] of x's dtype.

    Sums and products in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(wide.dtype)).to(x.dtype)
