"""``grouped_linear``: checks and choice of backend. Legend: as in ``reference.py``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from agentspec_kernels.backend import pick
from agentspec_kernels.linear.ordered import linear as ordered

from . import reference


def _stock(x: Tensor, weight: Tensor, experts: Tensor, choices: int) -> Tensor:
    """As the definition, by torch's own products, of the experts that have rows."""
    out = x.new_zeros(len(experts), weight.shape[1])
    order = experts.argsort(stable=True)
    found, counts = experts[order].unique_consecutive(return_counts=True)
    for expert, rows in zip(found.tolist(), order.split(counts.tolist()), strict=True):
        if 0 <= expert < len(weight):
            out[rows] = F.linear(x[rows // choices], weight[expert])
    return out


def _ordered(x: Tensor, weight: Tensor, experts: Tensor, choices: int) -> Tensor:
    """As the definition; a row's bits depend on that row and its expert only."""
    out = x.new_zeros(len(experts), weight.shape[1])
    for expert in range(len(weight)):
        rows = (experts == expert).nonzero()[:, 0]
        out[rows] = ordered(x[rows // choices], weight[expert])
    return out


def _triton(x: Tensor, weight: Tensor, experts: Tensor, choices: int) -> Tensor:
    """The kernel, whose rows do not depend on each other; float64 by the definition."""
    if x.dtype == torch.float64:
        return reference.grouped_linear(x, weight, experts, choices)
    from . import kernel

    return kernel.grouped_linear(x, weight, experts, choices)


BACKENDS = {
    "reference": reference.grouped_linear,
    "torch": _stock,
    "triton": _triton,
    "exact": _triton,
    "ordered": _ordered,
}


def grouped_linear(
    x: Tensor, weight: Tensor, experts: Tensor, *, choices: int = 1, backend: str | None = None
) -> Tensor:
    """Each of S rows by its expert's weight: new [S, N] of x's dtype.

    x: [S / C, K], each row of it for C = ``choices`` rows in turn; weight: [X, N, K] of that dtype;
    experts: [S] int64, and a row without one of the X (-1, or X and more) is zero.
    Raises ``UnknownBackend``.
    """
    assert x.dtype == weight.dtype and x.shape[1] == weight.shape[2] and experts.ndim == 1
    assert len(experts) == len(x) * choices
    return pick("grouped_linear", BACKENDS, backend, x.device.type)(x, weight, experts, choices)
