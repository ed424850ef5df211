"""``linear``: checks and choice of backend. Legend: T packed tokens, K inputs, N outputs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference


def _stock(x: Tensor, weight: Tensor) -> Tensor:
    """[T, K], [N, K] -> [T, N] by torch's own matrix product, in the weight's dtype."""
    return F.linear(x, weight)


BACKENDS = {"reference": reference.linear, "torch": _stock}


def linear(x: Tensor, weight: Tensor, *, backend: str | None = None) -> Tensor:
    """x @ weight.T: [T, K], [N, K] of one dtype -> new [T, N] of that dtype.

    Raises ``UnknownBackend``.
    """
    assert x.dtype == weight.dtype and x.shape[-1] == weight.shape[1]
    return pick("linear", BACKENDS, backend, x.device.type)(x, weight)
