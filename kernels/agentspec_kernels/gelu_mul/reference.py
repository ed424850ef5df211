"""The definition of ``gelu_mul``. Legend: T packed tokens, M features of the feed-forward layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def gelu_mul(gate_up: Tensor) -> Tensor:
    """gelu(gate) * up by the tanh formula: [T, 2M], gate first, -> [T, M] of the same dtype.

    Computed in float32, or float64 for float64 input; one rounding at the end.
    """
    wide = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32))
    gate, up = wide.chunk(2, -1)
    return (F.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)
