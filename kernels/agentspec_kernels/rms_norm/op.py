"""``rms_norm``: argument checks and choice of backend. Legend: T packed tokens, N features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _stock(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[T, N], [N] -> [T, N]; torch's own fused norm, the same up to rounding."""
    if weight.dtype != x.dtype:
        return reference.rms_norm(x, weight, eps)
    return F.rms_norm(x, weight.shape, weight, eps)


def _triton(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if x.dtype == torch.float64:
        return reference.rms_norm(x, weight, eps)
    from . import kernel

    return kernel.rms_norm(x, weight, eps)


BACKENDS = {"reference": reference.rms_norm, "torch": _stock, "triton": _triton}


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, backend: str | None = None) -> Tensor:
    """Normalise each row of ``x`` [T, N] and scale it by ``weight`` [N]; new tensor of x's dtype.

    weight: of any float dtype. Raises ``UnknownBackend``.
    """
    assert weight.ndim == 1 and x.shape[-1] == weight.shape[0]
    return pick("rms_norm", BACKENDS, backend, x.device.type)(x, weight, eps)
