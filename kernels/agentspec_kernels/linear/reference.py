"""The definition of ``linear``. Legend: T packed tokens, K inputs, N outputs."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T: [T, K], [N, K] -> [T, N] of x's dtype.

    Products and sums in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) @ weight.to(wide).T).to(x.dtype)
