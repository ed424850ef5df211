"""The definition of ``grouped_linear``.

Legend: S rows, K inputs, N outputs, X experts, C choices a source row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grouped_linear(x: Tensor, weight: Tensor, experts: Tensor, choices: int) -> Tensor:
    """x [S / C, K], weight [X, N, K], experts [S] -> [S, N] of x's dtype.

    Row s is x[s // C] @ weight[experts[s]].T; zero where there is no such expert. Products and sums
    in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    out = x.new_zeros(len(experts), weight.shape[1])
    for expert in range(len(weight)):
        rows = (experts == expert).nonzero()[:, 0]
        product = x[rows // choices].to(wide) @ weight[expert].to(wide).T
        out[rows] = product.to(x.dtype)
    return out
