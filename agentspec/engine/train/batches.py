"""Anchors of each sample, packs of samples, and the tensors of one forward pass.

Legend: T packed tokens, A anchors, K proposed tokens, E hidden size, N tapped features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .dataset import Source, seeded
from .feature_cache import Entry
from .methods import Loss
from .nets.base import Batch


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sample of a step and its anchors: positions [A] int64, ascending."""

    entry: Entry
    anchors: Tensor

    def supervised(self, proposals: int) -> Tensor:
        """[A, K] bool: whether token anchor + 1 + k is in the sample. Answers are suffixes, so the
        loss mask before it is whole."""
        k = torch.arange(proposals)
        return self.anchors[:, None] + 1 + k < self.entry.tokens


def draw(entry: Entry, most: int, *parts: object) -> Drawn:
    """Up to ``most`` anchors, uniform without replacement among the answer's tokens but the last.

    parts: what the draw is keyed by. A draft begins behind a token whose answer has begun.
    """
    first, end = entry.prompt_tokens, entry.tokens - 1
    chosen = torch.randperm(max(end - first, 0), generator=seeded(*parts, entry.id))[:most]
    return Drawn(entry, chosen.sort().values + first)


def every(entry: Entry) -> Drawn:
    """All anchors there are; for evaluation."""
    return Drawn(entry, torch.arange(entry.prompt_tokens, max(entry.tokens - 1, 0)))


def packs(drawn: Sequence[Drawn], tokens: int, rows: int, proposals: int) -> list[list[Drawn]]:
    """Groups in order, each of at most ``tokens`` and ``rows`` proposals, or of one sample."""
    groups: list[list[Drawn]] = []
    size = height = 0
    for one in drawn:
        if not len(one.anchors):
            continue
        size, height = size + one.entry.tokens, height + len(one.anchors) * proposals
        if not groups or size > tokens or height > rows:
            groups.append([])
            size, height = one.entry.tokens, len(one.anchors) * proposals
        groups[-1].append(one)
    return groups


def weigh(drawn: Sequence[Drawn], loss: Loss, proposals: int) -> dict[str, float]:
    """For each sample of a whole step: 1 / what the sum of its weighted terms is to be divided by.

    The global mean has one divisor for all; the mean of means has one a sample.
    """
    weights = torch.tensor(loss.weights(proposals), dtype=torch.float64)
    sums = {d.entry.id: float((d.supervised(proposals) * weights).sum()) for d in drawn}
    live = [value for value in sums.values() if value > 0]
    if loss.per_sequence:
        return {id: 1 / (value * len(live)) if value else 0.0 for id, value in sums.items()}
    total = sum(live)
    return dict.fromkeys(sums, 1 / total if total else 0.0)


def assemble(
    source: Source, group: Sequence[Drawn], proposals: int, *, last_layer: bool, dtype: torch.dtype
) -> Batch:
    """The tensors of a group. last_layer: the features are the last hidden states (mtp)."""
    read = [source.read(one.entry) for one in group]
    lengths = torch.tensor([len(ids) for ids, _ in read])
    starts = lengths.cumsum(0) - lengths
    ids = torch.cat([ids for ids, _ in read])
    last = torch.cat([found.last for _, found in read]).to(dtype)
    features = last if last_layer else torch.cat([f.features for _, f in read]).to(dtype)
    owner = torch.repeat_interleave(torch.arange(len(read)), lengths)
    anchors = torch.cat([d.anchors + s for d, s in zip(group, starts.tolist(), strict=True)])
    supervised = torch.cat([one.supervised(proposals) for one in group])
    place = anchors[:, None] + torch.arange(proposals)
    return Batch(
        ids=ids,
        positions=torch.arange(len(ids)) - starts[owner],
        owner=owner,
        features=features,
        last=last,
        anchors=anchors,
        labels=ids[(place + 1).clamp(max=len(ids) - 1)],
        previous=ids[place.clamp(max=len(ids) - 1)],
        supervised=supervised,
    )
