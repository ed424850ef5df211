"""Anchors of each sample, packs of samples, and the tensors of one forward pass.

Legend: T packed tokens, A anchors, K proposed tokens, E hidden size, N tapped features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .dataset import Source, seeded
from .errors import TrainError
from .feature_cache import Entry
from .methods import Loss
from .nets.base import Batch
from .spec import DraftSpec
from .target import Featured


@dataclass(frozen=True, slots=True)
class Columns:
    """What a draft is given of each token. taps: which of the cached layers, by their place; None:
    all. last: the last hidden states instead (mtp)."""

    taps: tuple[int, ...] | None = None
    last: bool = False

    @classmethod
    def of(cls, cached: Sequence[int], spec: DraftSpec) -> Columns:
        """cached: the layers in the features. Raises ``TrainError`` where the draft taps others."""
        if spec.method == "mtp":
            return cls(last=True)
        missing = set(spec.target_layer_ids) - set(cached)
        if missing:
            raise TrainError(f"the features lack the outputs of layers {sorted(missing)}")
        return cls(tuple(list(cached).index(layer) for layer in spec.target_layer_ids))

    def choose(self, found: Featured) -> Tensor:
        """-> [T, N]."""
        if self.last:
            return found.last
        if self.taps is None:
            return found.features
        layers = found.features.view(len(found.features), -1, found.last.shape[1])
        return layers[:, list(self.taps)].flatten(1)


ALL = Columns()


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
    source: Source, group: Sequence[Drawn], proposals: int, *, columns: Columns, dtype: torch.dtype
) -> Batch:
    """The tensors of a group."""
    read = [source.read(one.entry) for one in group]
    lengths = torch.tensor([len(ids) for ids, _ in read])
    starts = lengths.cumsum(0) - lengths
    ids = torch.cat([ids for ids, _ in read])
    last = torch.cat([found.last for _, found in read]).to(dtype)
    features = torch.cat([columns.choose(found) for _, found in read]).to(dtype)
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
