"""Sequential Temperature Scaling: confidences that mean what they say (DSpark paper, 3.2.1).

Legend: N observed proposals, K places.

For k = 1, 2, ... in order, with the temperatures before it fixed: the temperature of place k is the
one that minimises the expected calibration error of the product of sigmoid(logit_i / T_i), i <= k,
against "the first k tokens were accepted". A temperature keeps the order within its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GRID = tuple(2.0 ** (i / 16) for i in range(-48, 49))
"""Temperatures that are tried, 1/8 to 8."""
BINS = 20


def ece(predicted: Tensor, observed: Tensor, bins: int = BINS) -> float:
    """Expected calibration error of probabilities [N] against outcomes [N] in [0, 1].

    Bins are of equal width; the mean of |mean predicted - mean observed| over them, by count.
    """
    if not len(predicted):
        return 0.0
    where = (predicted * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64)
    gap.index_add_(0, where, (predicted - observed).double())
    return float(gap.abs().sum() / len(predicted))


@dataclass(frozen=True, slots=True)
class Fitted:
    """temperatures: one a place. before, after: ECE of each prefix, at T = 1 and fitted.

    n: observations of each place."""

    temperatures: list[float]
    before: list[float]
    after: list[float]
    n: list[int]


def fit(logits: Tensor, accepted: Tensor, valid: Tensor, grid: Sequence[float] = GRID) -> Fitted:
    """logits [N, K]; accepted [N, K] in [0, 1]: the chance that place k stands when those before it
    did (0 or 1 where it was observed); valid [N, K] bool: a prefix.

    A place that nothing was seen of keeps the temperature of the one before.
    """
    logits, accepted = logits.double(), accepted.double()
    outcome = accepted.cumprod(1)
    raw, fitted = torch.ones(len(logits)).double(), torch.ones(len(logits)).double()
    result = Fitted([], [], [], [])
    for k in range(logits.shape[1]):
        seen = valid[:, k]
        observed = outcome[seen, k]
        raw = raw * logits[:, k].sigmoid()

        def error(t: float, k: int = k, seen: Tensor = seen, observed: Tensor = observed) -> float:
            return ece((fitted * (logits[:, k] / t).sigmoid())[seen], observed)  # noqa: B023

        best = result.temperatures[-1] if result.temperatures else 1.0
        if len(observed):
            # Of equal errors the temperature nearest 1.
            best = min(grid, key=lambda t: (round(error(t), 9), abs(t - 1)))
        result.before.append(ece(raw[seen], observed))
        result.after.append(error(best))
        result.temperatures.append(best)
        result.n.append(len(observed))
        fitted = fitted * (logits[:, k] / best).sigmoid()
    return result
