"""``rope``: checks and choice of backend. Legend: T packed tokens, H heads, D head size."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _triton(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The kernel; float64, which it does not know, by the definition."""
    if x.dtype == torch.float64:
        return reference.rope(x, cos, sin)
    from . import kernel

    return kernel.rope(x, cos, sin)


BACKENDS = {"reference": reference.rope, "torch": reference.rope, "triton": _triton}


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, backend: str | None = None) -> Tensor:
    """Turn each head of ``x`` [T, H, D] by its row's angles; new tensor of x's dtype.

    cos, sin: [T, D/2] rows of ``rope_table`` at the tokens' absolute positions, float32 or float64.
    Raises ``UnknownBackend``.
    """
    assert x.ndim == 3 and cos.shape == sin.shape == (x.shape[0], x.shape[2] // 2)
    return pick("rope", BACKENDS, backend, x.device.type)(x, cos, sin)
