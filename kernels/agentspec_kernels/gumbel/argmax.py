"""The token that Gumbel noise chooses, without computing the noise where it cannot matter.

Legend: V vocabulary.

With u uniform, log p - log(-log u) is greatest where p / -log u is. As -log u >= 1 - u, the
quotient p / (1 - u) bounds it from above, and needs no logarithm: only the few tokens whose bound
reaches the best one's quotient are looked at closely.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .op import gumbel
from .reference import one_minus_uniform

_MARGIN = 1e-6
"""Relative; far above the error of a device's own logarithm (about 1e-15), far below usual gaps."""


def gumbel_argmax(probs: Tensor, seed: int, position: int) -> int:
    """``(probs.double().log() + gumbel(seed, position)).argmax()``, the same token always.

    probs: [V] of any float dtype, not modified, in any scale; none is negative, NaN or infinite and
    at least one is positive. Where the device's own arithmetic finds no clear winner, the exact
    noise decides.
    """
    weights = probs.double()
    rest = one_minus_uniform(seed, position, probs.numel(), probs.device)
    bound = weights / rest
    best = _argmax(bound)
    # The margin is twice as wide here, so that nothing near the best token is passed over.
    least = weights[best] / -torch.log1p(-rest[best]) * (1 - 2 * _MARGIN)
    close = (bound >= least).nonzero().squeeze(1)
    if close.numel() == 1:
        return best
    quotients = weights[close] / -torch.log1p(-rest[close])
    top = quotients.argmax()
    if int((quotients >= quotients[top] * (1 - _MARGIN)).sum()) == 1:
        return int(close[top])
    noise = gumbel(seed, position, probs.numel(), device=probs.device, dtype=torch.float64)
    return int((weights.log() + noise).argmax())


def _argmax(values: Tensor) -> int:
    """numpy's is ten times as fast as torch's on a CPU."""
    return int(values.numpy().argmax()) if values.device.type == "cpu" else int(values.argmax())
