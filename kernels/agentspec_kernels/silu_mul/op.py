"""``silu_mul``: argument checks and choice of backend. Legend: T packed tokens, M features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _stock(gate_up: Tensor) -> Tensor:
    """[T, 2M] -> [T, M]; in x's own dtype, so that bf16 rounds once more than the definition."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)


def _triton(gate_up: Tensor) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if gate_up.dtype == torch.float64:
        return reference.silu_mul(gate_up)
    from . import kernel

    return kernel.silu_mul(gate_up)


BACKENDS = {"reference": reference.silu_mul, "torch": _stock, "triton": _triton}


def silu_mul(gate_up: Tensor, *, backend: str | None = None) -> Tensor:
    """silu of the first half times the second half: [T, 2M] -> new [T, M] of the same dtype.

    Raises ``UnknownBackend``.
    """
    assert gate_up.shape[-1] % 2 == 0
    return pick("silu_mul", BACKENDS, backend, gate_up.device.type)(gate_up)
