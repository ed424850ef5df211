"""``gelu_mul``: argument checks and choice of backend. Legend: T packed tokens, M features."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _triton(gate_up: Tensor) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if gate_up.dtype == torch.float64:
        return reference.gelu_mul(gate_up)
    from agentspec_kernels.silu_mul import kernel

    return kernel.gated(gate_up, gelu=True)


BACKENDS = {"reference": reference.gelu_mul, "torch": reference.gelu_mul, "triton": _triton}


def gelu_mul(gate_up: Tensor, *, backend: str | None = None) -> Tensor:
    """gelu (tanh) of the first half times the second half: [T, 2M] -> new [T, M] of its dtype.

    Raises ``UnknownBackend``.
    """
    assert gate_up.shape[-1] % 2 == 0
    return pick("gelu_mul", BACKENDS, backend, gate_up.device.type)(gate_up)
