"""A product whose bits depend on nothing but the two rows: for any device, slow.

Legend: T packed tokens, K inputs, N outputs.

torch's own product chooses its order of sums by shape. Here a sum over inputs is a tree of halves,
made of whole-tensor additions: the same operations for every pair of rows, however many there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

_AT_ONCE = 1 << 22
"""Products kept at a time."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T: [T, K], [N, K] -> [T, N] of x's dtype; one rounding at the end."""
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = max(1, _AT_ONCE // max(1, x.numel()))
    a = x.to(wide)[:, None]
    return torch.cat([_halved(a * part.to(wide)).to(x.dtype) for part in weight.split(rows)], -1)


def _halved(products: Tensor) -> Tensor:
    """[T, N, K] -> their sums over K, [T, N]."""
    while (inputs := products.shape[-1]) > 1:
        half = inputs // 2
        added = products[..., :half] + products[..., half : 2 * half]
        products = torch.cat((added, products[..., 2 * half :]), -1) if inputs % 2 else added
    return products[..., 0]
