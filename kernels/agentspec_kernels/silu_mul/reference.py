"""The definition of ``silu_mul``. Legend: T packed tokens, M features of the feed-forward layer."""

from __future__ import annotations

import torch
from torch import Tensor


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate * sigmoid(gate) * up: [T, 2M], gate first, -> [T, M] of the same dtype.

    Computed in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32))
    gate, up = wide.chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)
