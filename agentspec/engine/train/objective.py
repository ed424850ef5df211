"""From a batch to its loss: rows of the net, coefficients, head, confidence.

Legend: A anchors, K proposed tokens, R supervised rows, E hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .losses import Coefficients, Head, head_loss
from .methods import Loss
from .nets.base import Batch, DraftNet


@dataclass(frozen=True, slots=True)
class Outcome:
    """loss: scalar with gradient, this batch's part of the step's. rows [R] int64: the place k of
    each supervised row. overlap [R] float, hit [R] bool: as ``losses.HeadLoss``. confidence [R]:
    logits or None. anchor [R] int64: which anchor a row is of."""

    loss: Tensor
    rows: Tensor
    anchor: Tensor
    overlap: Tensor
    hit: Tensor
    confidence: Tensor | None


def outcome(
    net: DraftNet,
    batch: Batch,
    embedding: Tensor,
    head: Head,
    loss: Loss,
    scale: Tensor,
    *,
    measure: bool = True,
) -> Outcome:
    """scale [A] float: of each anchor, 1 / divisor of its terms (``batches.weigh``)."""
    rows = net(batch, embedding)
    anchor, place = batch.supervised.nonzero(as_tuple=True)
    weights = torch.tensor(loss.weights(batch.labels.shape[1]), dtype=scale.dtype)
    weight = weights.to(scale.device)[place] * scale[anchor]
    measure = measure or loss.confidence > 0
    result = head_loss(
        head,
        rows.hidden[anchor, place],
        None if rows.markov is None else rows.markov[anchor, place],
        net.w2,
        batch.last,
        batch.anchors[anchor] + place,
        batch.labels[anchor, place],
        Coefficients(weight * loss.ce, weight * loss.l1, weight * loss.soft),
        measure=measure,
    )
    total, confidence = result.loss, None
    if rows.confidence is not None:
        confidence = rows.confidence[anchor, place]
        entropy = F.binary_cross_entropy_with_logits(
            confidence, result.overlap.clamp(0, 1).to(confidence.dtype), reduction="none"
        )
        total = total + loss.confidence * (weight * entropy).sum()
    return Outcome(total, place, anchor, result.overlap, result.hit, confidence)
