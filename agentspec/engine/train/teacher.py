"""Teacher-forced acceptance of a draft over whole samples: what calibrate and eval are made of.

Legend: A anchors (every position of an answer), K proposed tokens, R supervised rows.

With the true tokens before it, the row of place k is the one that is seen when the k tokens before
it were accepted; so where the target is greedy, leading hits are exactly what would be accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .batches import Columns, assemble, every, packs
from .config import DraftToml, TrainConfig
from .data import Data
from .errors import TrainError
from .export import Draft, read_draft
from .feature_cache import Entry
from .losses import Coefficients, head_loss
from .masks import masked_overlap
from .nets import DraftNet
from .nets.base import Batch
from .stepper import Frozen, moved, running, there
from .target import Target
from .trainer import EXPORT, fastest_dtype

_PACK_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Judged:
    """One sample, [A, K] each, zero where not valid.

    valid bool: the place is in the sample. hit bool: the best token is the sample's. overlap float:
    1 - TV, the chance that a drawn token stands. confidence: logits (zero without a head). masked
    bool: a grammar leaves more than one token; masked_overlap: that chance under its mask, 1 where
    it leaves one.
    """

    entry: Entry
    valid: Tensor
    hit: Tensor
    overlap: Tensor
    confidence: Tensor
    masked: Tensor
    masked_overlap: Tensor


@dataclass(slots=True)
class Opened:
    """A trained draft with its target and samples."""

    target: Target
    data: Data
    draft: Draft

    @classmethod
    def of(cls, toml: DraftToml) -> Opened:
        """Raises ``TrainError``, or ``Mismatch`` where draft, features and target differ."""
        target = Target.open(toml)
        folder = toml.run / EXPORT
        draft = read_draft(folder)
        target.id.require(draft.about["target"], str(folder))
        return cls(target, Data.open(toml, target), draft)

    def entries(self, on: str) -> list[Entry]:
        """Raises ``TrainError`` where no sample is held out."""
        split, source = self.data.split, self.data.source
        chosen = {"held": split.held, "train": split.train}.get(on, range(len(source.entries)))
        if not chosen:
            raise TrainError("no sample is held out: set train.held_out, or pass --on train")
        return [source.entries[i] for i in chosen]

    def judge(
        self, entries: Sequence[Entry], config: TrainConfig, masks: Masks | None = None
    ) -> Iterator[Judged]:
        """Every sample in order, all its anchors. masks: where to get a sample's grammar masks."""
        dtype = fastest_dtype(config.device) if config.dtype == "auto" else config.dtype
        tables = self.target.tables
        wide = torch.float64 if dtype == "fp64" else torch.float32
        net = self.draft.net().to(there(config.device), wide).eval()
        frozen = Frozen.of(
            tables.embedding, tables.head, net.token_ids,
            dtype=dtype, device=config.device, chunk=config.chunk,
        )  # fmt: skip
        proposals, columns = net.spec.proposals, Columns.of(self.target.layers, net.spec)
        drawn = [every(entry) for entry in entries]
        rows = config.anchors * proposals * 4
        for group in packs(drawn, _PACK_TOKENS, rows, proposals):
            batch = assemble(self.data.source, group, proposals, columns=columns, dtype=wide)
            words = [None if masks is None else masks(one.entry.id) for one in group]
            with torch.no_grad(), running(dtype, config.device):
                grids = _grids(net, moved(batch, config.device), frozen, words)
            sizes = [len(one.anchors) for one in group]
            for one, *parts in zip(group, *(grid.split(sizes) for grid in grids), strict=True):
                yield Judged(one.entry, *parts)


Masks = Callable[[str], Tensor | None]
"""Id of a sample -> mask words [answer tokens, W] int32, or None where nothing constrains it."""


def _grids(
    net: DraftNet, batch: Batch, frozen: Frozen, words: Sequence[Tensor | None]
) -> list[Tensor]:
    """valid, hit, overlap, confidence, masked, masked overlap: [A, K] on the CPU."""
    rows = net(batch, frozen.embedding)
    anchor, place = batch.supervised.nonzero(as_tuple=True)
    hidden = rows.hidden[anchor, place]
    markov = None if rows.markov is None else rows.markov[anchor, place]
    targets = batch.anchors[anchor] + place
    zero = torch.zeros(len(anchor), device=hidden.device)
    result = head_loss(
        frozen.head, hidden, markov, net.w2, batch.last, targets,
        batch.labels[anchor, place], Coefficients(zero, zero, zero),
    )  # fmt: skip
    confidence = zero if rows.confidence is None else rows.confidence[anchor, place]
    masked, overlap = masked_overlap(
        frozen.head, hidden, markov, net.w2, batch.last, targets, _row_masks(batch, words, targets)
    )
    grids = [batch.supervised.cpu()]
    for value in (result.hit, result.overlap, confidence, masked, overlap):
        grid = torch.zeros(batch.supervised.shape, dtype=value.dtype)
        grid[anchor.cpu(), place.cpu()] = value.cpu()
        grids.append(grid)
    return grids


def _row_masks(
    batch: Batch, words: Sequence[Tensor | None], targets: Tensor
) -> list[Tensor | None]:
    """The mask words [W] of what each row proposes. targets [R]: packed index of what is before."""
    answers = []
    for piece, mask in zip(batch.pieces(), words, strict=True):
        first = piece.tokens.stop - (0 if mask is None else len(mask))
        answers.append((first, mask))
    owners = batch.owner[targets].tolist()
    found: list[Tensor | None] = []
    for owner, index in zip(owners, (targets + 1).tolist(), strict=True):
        first, mask = answers[owner]
        found.append(None if mask is None else mask[index - first])
    return found
