"""Samples with their features, and which of them a step takes, alike in every process.

Everything drawn here is keyed by (seed, epoch, sample): nothing depends on what was drawn before,
so a run that was interrupted goes on exactly as it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .errors import TrainError
from .feature_cache import Entry
from .identity import key, share
from .samples import Sample
from .target import Featured, Target


class Source(Protocol):
    """Where samples come from. entries: all there are."""

    entries: list[Entry]

    def read(self, entry: Entry) -> tuple[Tensor, Featured]:
        """ids [T] int64 and features of a sample."""
        ...


class Online:
    """Features computed when they are asked for: no disk, and the target runs in every epoch."""

    def __init__(self, target: Target, samples: Sequence[Sample], batch_tokens: int):
        self._target, self._batch_tokens = target, batch_tokens
        self._ids = {sample.id: sample.ids for sample in samples}
        self.entries = [Entry(s.id, -1, 0, len(s.ids), s.prompt_tokens) for s in samples]

    def read(self, entry: Entry) -> tuple[Tensor, Featured]:
        ids = self._ids[entry.id]
        (found,) = self._target.features([ids], self._batch_tokens)
        return torch.tensor(ids), found


@dataclass(frozen=True, slots=True)
class Split:
    """train, held: indices of a source's entries; the split depends on ids and seed alone."""

    train: list[int]
    held: list[int]

    @classmethod
    def of(cls, source: Source, held_out: float, seed: int) -> Split:
        """Raises ``TrainError`` where nothing is left to train on."""
        drawn = share(seed, [entry.id for entry in source.entries])
        held = [i for i, e in enumerate(source.entries) if drawn[e.id] < held_out]
        kept = set(held)
        train = [i for i in range(len(source.entries)) if i not in kept]
        if not train:
            raise TrainError("there is no sample to train on: run 'agentspec draft regenerate'")
        return cls(train, held)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps of a run. batch: sequences of a step."""

    train: list[int]
    batch: int
    epochs: int
    seed: int
    max_steps: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.train) // self.batch)

    @property
    def steps(self) -> int:
        whole = self.steps_per_epoch * self.epochs
        return whole if self.max_steps is None else min(whole, self.max_steps)

    def epoch(self, step: int) -> int:
        return step // self.steps_per_epoch

    def indices(self, step: int) -> list[int]:
        """The entries of step ``step``, in order; every epoch takes each once."""
        order = torch.randperm(
            len(self.train), generator=seeded(self.seed, "order", self.epoch(step))
        )
        start = step % self.steps_per_epoch * self.batch
        return [self.train[i] for i in order[start : start + self.batch].tolist()]


def seeded(*parts: object) -> torch.Generator:
    """A generator that depends on ``parts`` alone."""
    return torch.Generator().manual_seed(key(*parts))
