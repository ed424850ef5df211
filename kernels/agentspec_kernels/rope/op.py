"""``rope``: checks and choice of backend. Legend: T packed tokens, H heads, D head size."""

from __future__ import annotations

from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference

BACKENDS = {"reference": reference.rope, "torch": reference.rope}


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, backend: str | None = None) -> Tensor:
    """Turn each head of ``x`` [T, H, D] by its row's angles; new tensor of x's dtype.

    cos, sin: [T, D/2] rows of ``rope_table`` at the tokens' absolute positions, float32 or float64.
    Raises ``UnknownBackend``.
    """
    assert x.ndim == 3 and cos.shape == sin.shape == (x.shape[0], x.shape[2] // 2)
    return pick("rope", BACKENDS, backend, x.device.type)(x, cos, sin)
