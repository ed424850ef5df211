"""The definition of ``linear_q``: int8 activations against 4- or 8-bit group-quantised weights.

Legend: T rows, N outputs, K inputs, G = K / 32 groups.

    y[t, n] = sum_g  scale[t, g] * (d[n, g] * S[t, n, g] + m[n, g] * X[t, g])

S is the exact integer sum of weight codes times activation codes in group g, X the sum of the
activation codes. One scale for each 32 inputs, on both sides, keeps the loss within 0.005 nll of
float weights (docs/performance.md); one scale a row loses 0.028.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .pack import GROUP, QuantizedWeight


def quantize_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, K] float32 -> codes [T, K] int8 and scale [T, G] float32, scale = max|x| / 127."""
    rows, inputs = x.shape
    grouped = x.float().view(rows, inputs // GROUP, GROUP)
    top = grouped.abs().amax(-1)
    inverse = torch.where(top > 0, 127 / top, torch.zeros_like(top))
    codes = torch.round(grouped * inverse[..., None]).to(torch.int8)
    return codes.view(rows, inputs), top / 127


def linear_q_reference(x: Tensor, weight: QuantizedWeight) -> Tensor:
    """x [T, K] float32 -> [T, N] float32, groups added in ascending order."""
    rows, inputs = x.shape
    codes, scale = quantize_activations(x)
    groups = inputs // GROUP
    a = codes.view(rows, groups, GROUP).to(torch.int64)
    w = torch.from_numpy(weight.codes.astype("int64")).view(-1, groups, GROUP)
    d = torch.from_numpy(weight.d.astype("float32"))
    y = torch.zeros(rows, w.shape[0])
    for g in range(groups):
        exact = a[:, g] @ w[:, g].T
        y += scale[:, g, None] * d[:, g] * exact.float()
        if weight.m is not None:
            m = torch.from_numpy(weight.m.astype("float32"))
            y += m[:, g] * (scale[:, g, None] * a[:, g].sum(-1, keepdim=True).float())
    return y
