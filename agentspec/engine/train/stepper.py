"""One optimiser step: packs forward and backward, gradients over all processes, clip, update.

Legend: A anchors, K proposed tokens, V vocabulary, E hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .batches import ALL, Columns, Drawn, assemble, draw, packs, weigh
from .config import TrainConfig
from .dataset import Schedule, Source
from .distributed import Ranks
from .errors import TrainError
from .flops import Work, flops
from .losses import Head
from .methods import Loss
from .nets import DraftNet
from .nets.base import Batch
from .objective import Outcome, outcome
from .optim import learning_rate

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True, slots=True)
class Frozen:
    """embedding [V, E] and head of the target, on the device and of the dtypes that run."""

    embedding: Tensor
    head: Head

    @classmethod
    def of(
        cls,
        embedding: Tensor,
        head: Tensor,
        ids: Tensor | None,
        *,
        dtype: str,
        device: str,
        chunk: int,
    ) -> Frozen:
        """ids [U] int64: the tokens that the draft can propose; None: all."""
        wide = torch.float64 if dtype == "fp64" else torch.float32
        whole = head.to(device, DTYPES[dtype]).contiguous()
        return cls(embedding.to(device, wide), Head.of(whole, chunk, ids))


@dataclass(slots=True)
class Sums:
    """Of one step, over all processes. overlap, hit and rows: by place k, [K] each."""

    loss: float
    norm: float
    rows: list[int]
    overlap: list[float]
    hit: list[int]
    work: Work
    flops: int


@dataclass(slots=True)
class Stepper:
    """Holds the net and its optimiser; ``step`` changes both."""

    net: DraftNet
    optimizer: torch.optim.Optimizer
    source: Source
    schedule: Schedule
    frozen: Frozen
    loss: Loss
    config: TrainConfig
    dtype: str
    ranks: Ranks = field(default_factory=Ranks)
    columns: Columns = ALL

    def step(self, number: int) -> Sums:
        """Step ``number`` of the schedule. Raises ``FloatingPointError`` where the loss isn't
        finite; the net is then unchanged."""
        entries = [self.source.entries[i] for i in self.schedule.indices(number)]
        epoch, seed = self.schedule.epoch(number), self.schedule.seed
        drawn = [draw(entry, self.config.anchors, seed, "anchors", epoch) for entry in entries]
        counts = _Counts(self.net.spec.proposals, self.frozen.embedding.device)
        self.optimizer.zero_grad(set_to_none=False)
        for parameter in self.net.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        scales = weigh(drawn, self.loss, self.net.spec.proposals)
        for batch, scale in self._batches(self.ranks.share(drawn), scales):
            with running(self.dtype, self.config.device):
                found = outcome(
                    self.net, batch, self.frozen.embedding, self.frozen.head, self.loss, scale,
                    measure=False,
                )  # fmt: skip
            found.loss.backward()
            counts.add(batch, found)
        gradients = [p.grad for p in self.net.parameters() if p.grad is not None]
        self.ranks.add([*gradients, counts.total])
        return self._update(number, counts)

    def _update(self, number: int, counts: _Counts) -> Sums:
        limit = self.config.clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.net.parameters(), limit))
        sums = counts.sums(norm, self.net.spec, needs_target=self._needs_target())
        if not torch.isfinite(torch.tensor([sums.loss, norm])).all():
            raise FloatingPointError(f"step {number}: the loss is {sums.loss}, its gradient {norm}")
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, number, self.schedule.steps)
        self.optimizer.step()
        return sums

    def _needs_target(self) -> bool:
        return self.loss.l1 > 0 or self.loss.soft > 0 or self.loss.confidence > 0

    def _batches(self, drawn: Sequence[Drawn], scales: dict[str, float]):
        """(batch, scale [A]) of each pack."""
        count = self.net.spec.proposals
        rows = self.config.anchors * count * 4
        wide = self.frozen.embedding.dtype
        device = self.config.device
        for group in packs(drawn, self.config.pack_tokens, rows, count):
            batch = assemble(self.source, group, count, columns=self.columns, dtype=wide)
            scale = torch.cat(
                [torch.full((len(d.anchors),), scales[d.entry.id], dtype=wide) for d in group]
            )
            yield moved(batch, device), scale.to(device)


def there(device: str) -> str:
    """``device``, where torch has it. Raises ``TrainError``."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise TrainError(f"train.device {device!r}: {str(error).splitlines()[0]}") from None
    return device


def running(dtype: str, device: str):
    """The context that forward runs in: products in bf16, or everything as it is."""
    if dtype == "bf16":
        return torch.autocast(device.partition(":")[0], torch.bfloat16)
    return nullcontext()


def moved(batch: Batch, device: str) -> Batch:
    if device == "cpu":
        return batch
    return Batch(**{name: getattr(batch, name).to(device) for name in Batch.__slots__})


class _Counts:
    """Sums of a step as one float64 tensor, so that processes can add them up."""

    def __init__(self, proposals: int, device: torch.device):
        self._proposals = proposals
        self.total = torch.zeros(5 + 3 * proposals, dtype=torch.float64, device=device)

    def add(self, batch: Batch, found: Outcome) -> None:
        rows, unique = len(found.rows), len(torch.unique(batch.anchors[found.anchor] + found.rows))
        head = torch.tensor(
            [float(found.loss.detach()), batch.context_tokens, len(batch.anchors), rows, unique]
        )
        self.total[:5] += head.to(self.total)
        for i, values in enumerate((torch.ones(rows), found.overlap, found.hit)):
            at = 5 + i * self._proposals
            part = self.total[at : at + self._proposals]
            part.index_add_(0, found.rows, values.to(part))

    def sums(self, norm: float, spec, *, needs_target: bool) -> Sums:
        loss, *counts = self.total[:5].tolist()
        context, anchors, rows, unique = (int(count) for count in counts)
        work = Work(context, anchors, rows, unique if needs_target else 0)
        by_place = self.total[5:].view(3, -1).tolist()
        return Sums(
            loss=loss,
            norm=norm,
            rows=[int(value) for value in by_place[0]],
            overlap=by_place[1],
            hit=[int(value) for value in by_place[2]],
            work=work,
            flops=flops(spec, work),
        )
