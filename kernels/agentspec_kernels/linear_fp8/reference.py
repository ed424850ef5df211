"""The definition of ``linear_fp8``.

Legend: T packed tokens, K inputs, N outputs, G inputs a scale.
"""

from __future__ import annotations

import torch
from torch import Tensor


def linear_fp8(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """x @ (codes * scale).T: [T, K], [N, K] e4m3, [N, K / G] -> [T, N] of x's dtype.

    Products and sums in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    outputs, inputs = codes.shape
    grouped = codes.to(wide).view(outputs, scale.shape[1], -1) * scale.to(wide)[..., None]
    return (x.to(wide) @ grouped.view(outputs, inputs).T).to(x.dtype)
