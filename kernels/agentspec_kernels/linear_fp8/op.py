"""``linear_fp8``: checks and choice of backend. Legend: as in ``reference.py``."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _triton(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if x.dtype == torch.float64:
        return reference.linear_fp8(x, codes, scale)
    from agentspec_kernels.linear import kernel

    return kernel.linear(x, codes, scale)


BACKENDS = {"reference": reference.linear_fp8, "torch": reference.linear_fp8, "triton": _triton}


def linear_fp8(x: Tensor, codes: Tensor, scale: Tensor, *, backend: str | None = None) -> Tensor:
    """x @ (codes * scale).T: [T, K], [N, K] e4m3, [N, K / G] float32 -> new [T, N] of x's dtype.

    G = K is a scale a row; else G divides K and is a multiple of 16 (of blocks, repeat their scale
    for every row). Codes that are NaN are not allowed. Raises ``UnknownBackend``.
    """
    assert codes.dtype == torch.float8_e4m3fn and scale.dtype == torch.float32 and scale.ndim == 2
    assert x.shape[1] == codes.shape[1] and len(scale) == len(codes)
    assert codes.shape[1] % scale.shape[1] == 0
    assert scale.shape[1] == 1 or codes.shape[1] // scale.shape[1] % 16 == 0
    return pick("linear_fp8", BACKENDS, backend, x.device.type)(x, codes, scale)
