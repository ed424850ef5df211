"""The token that Gumbel noise chooses, without the noise's exact bits where they cannot matter.

Legend: V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from .op import gumbel
from .reference import uniform

_MARGIN = 1e-6
"""Far above the error of a device's own logarithm (about 1e-15 here), far below usual gaps."""


def gumbel_argmax(log_probs: Tensor, seed: int, position: int) -> int:
    """``(log_probs + gumbel(seed, position)).argmax()`` in float64, the same token always.

    log_probs: [V] float64, not modified; at least one is finite, none is NaN or +inf. The device's
    own logarithm finds the tokens within a margin of the best; where that is one token it is the
    answer, else the exact noise decides.
    """
    vocab, device = log_probs.numel(), log_probs.device
    rough = uniform(seed, position, vocab, device).log_().neg_().log_().neg_().add_(log_probs)
    best = int(rough.argmax())
    if int((rough >= rough[best] - _MARGIN).sum()) == 1:
        return best
    noise = gumbel(seed, position, vocab, device=device, dtype=log_probs.dtype)
    return int((log_probs + noise).argmax())
