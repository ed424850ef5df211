"""``linear``: checks and choice of backend. Legend: T packed tokens, K inputs, N outputs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from agentspec_kernels.backend import pick

from . import ordered, reference


def _stock(x: Tensor, weight: Tensor) -> Tensor:
    """[T, K], [N, K] -> [T, N] by torch's own matrix product, in the weight's dtype."""
    return F.linear(x, weight)


def _exact(x: Tensor, weight: Tensor) -> Tensor:
    """[T, K], [N, K] -> [T, N] in Triton: a row's bits do not depend on the other rows."""
    from . import kernel

    return kernel.linear(x, weight)


BACKENDS = {
    "reference": reference.linear,
    "torch": _stock,
    "exact": _exact,
    "ordered": ordered.linear,
}


def linear(x: Tensor, weight: Tensor, *, backend: str | None = None) -> Tensor:
    """x @ weight.T: [T, K], [N, K] of one dtype -> new [T, N] of that dtype.

    backend "exact", on CUDA: slower than the stock product, but the same for a row in any batch.
    "ordered": the same on any device, slowly, and for an output among any others.
    Raises ``UnknownBackend``.
    """
    assert x.dtype == weight.dtype and x.shape[-1] == weight.shape[1]
    return pick("linear", BACKENDS, backend, x.device.type)(x, weight)
