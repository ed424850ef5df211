"""The drafters ``eagle3`` and ``mtp``: one layer over the target's activations, step by step.

Row i pairs the target's features of position i with token i + 1. Rows of committed tokens lie in a
plane beside the target's pages; a draft goes on from the last of them with its own output and its
own tokens. Where the grammar forced tokens whose features do not exist yet, the draft steps over
them as over tokens of its own. Sources: EAGLE-3 (arXiv 2503.01840), DeepSeek-V3 (arXiv 2412.19437,
section 2.2).

Legend: E hidden size, U rows of draft logits, V vocabulary.
Read next: ``drawing.py`` (how tokens are chosen), ``step_backbone.py`` (what computes).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .backbone import MOST_BLOCKS, block_table, scratch
from .base import EMPTY, DraftView, Observed, Proposal
from .context import Context, Plane
from .drawing import Drawing
from .step_backbone import StepBackbone, StepChunk, StepRow
from .step_config import StepConfig
from .waiting import Waiting

_LEAST_CONTEXT = 16
_WIDEST_GAP = 8
"""Committed tokens without features that a draft steps over; the output drifts with each."""


@dataclass(slots=True)
class _Text:
    """What is known of a sequence; carried: [E] of its last true row, None before there is one."""

    context: Context
    carried: Tensor | None = None


@dataclass(slots=True)
class _Job:
    """One sequence's part in a call. feed: the tokens of its next rows; slot: of the next one, in
    ``pages``; position: the rotary one."""

    drawing: Drawing
    pages: list[int]
    slot: int
    position: int
    carried: Tensor
    feed: list[int] = field(default_factory=list)

    def row(self) -> StepRow:
        wanted = len(self.feed) == 1
        return StepRow(self.pages, self.slot, self.position, self.feed[0], self.carried, wanted)

    def went(self, carried: Tensor) -> None:
        """The next row was computed."""
        del self.feed[0]
        self.carried = carried
        self.slot += 1
        self.position += 1


class StepDrafter:
    """A ``TappedDrafter``. name: of the source in reports.

    target_ids: [U] int64, which token of the target each row of draft logits is.
    min_survival: a draft ends where the product of its confidences falls below it.
    """

    def __init__(
        self,
        name: str,
        config: StepConfig,
        backbone: StepBackbone,
        *,
        taps: tuple[int, ...],
        target_ids: Tensor,
        min_survival: float = 0.1,
    ):
        self.name = name
        self.config = config
        self.taps = taps
        self._backbone = backbone
        self._target_ids = target_ids
        self._whole = len(target_ids) == config.shape.vocab
        self._min_survival = min_survival
        self._plane = Plane(backbone.num_pages)
        self._texts: dict[int, _Text] = {}
        self._waiting = Waiting()

    def open(self, view: DraftView) -> None:
        self._texts[view.sequence_id] = _Text(self._plane.open(view))

    def observe(self, observed: Sequence[Observed]) -> None:
        self._write(self._waiting.take(observed))

    def _write(self, observed: Sequence[Observed]) -> None:
        if not observed:
            return
        chunks = [
            StepChunk(o.view.pages, o.start, o.features, o.view.tokens[o.start + 1 : o.end + 1])
            for o in observed
        ]
        carried = self._backbone.extend(chunks)
        for seen, last in zip(observed, carried, strict=True):
            text = self._texts[seen.view.sequence_id]
            self._plane.extend(text.context, seen)
            text.carried = last

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        self._write(self._waiting.due(view.sequence_id for view in views))
        asked = list(zip(views, limits, strict=True))
        proposals: list[Proposal] = []
        for first in range(0, len(asked), MOST_BLOCKS):
            proposals += self._propose(asked[first : first + MOST_BLOCKS])
        return proposals

    def _propose(self, asked: Sequence[tuple[DraftView, int]]) -> list[Proposal]:
        with ExitStack() as stack:
            jobs: list[_Job | None] = []
            for place, (view, limit) in enumerate(asked):
                job = self._job(view, min(limit, self.config.steps), place)
                if job is not None:
                    stack.enter_context(job.drawing)
                jobs.append(job)
            running = [job for job in jobs if job is not None]
            while running:
                self._step(running)
                running = [job for job in running if job.feed and not job.drawing.ended]
            return [EMPTY if job is None else job.drawing.result() for job in jobs]

    def _job(self, view: DraftView, limit: int, place: int) -> _Job | None:
        """How a sequence's draft begins; None where it isn't drafted."""
        text = self._texts[view.sequence_id]
        context, carried = text.context, text.carried
        known = view.tokens[context.end :]
        least = min(_LEAST_CONTEXT, context.end)
        if carried is None or limit < 1 or not 1 <= len(known) <= _WIDEST_GAP:
            return None
        if context.known < max(least, 1):
            return None
        spare = scratch(self._backbone.num_pages, place)
        return _Job(
            drawing=Drawing(
                self.name, view, limit, self.config.shape.vocab, view.entropy, self._min_survival
            ),
            pages=block_table(view.pages, context.start, context.end, spare),
            slot=context.end - 1 - context.start,
            position=context.end - 1,
            carried=carried,
            feed=known,
        )

    def _step(self, jobs: Sequence[_Job]) -> None:
        """One row of every job; where it was the last that is known, the next tokens are drawn."""
        rows = [job.row() for job in jobs]
        carried, logits = self._backbone.run(rows)
        place = 0
        for job, row, out in zip(jobs, rows, carried, strict=True):
            job.went(out)
            if row.wanted:
                job.feed = list(job.drawing.draw(self._scores(logits[place])))
                place += 1

    def _scores(self, logits: Tensor) -> Tensor:
        """[U] -> [V]."""
        if self._whole:
            return logits
        scores = logits.new_full((self.config.shape.vocab,), -torch.inf)
        scores[self._target_ids] = logits
        return scores

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        """Nothing to learn: true rows come by ``observe``."""

    def close(self, view: DraftView) -> None:
        self._write(self._waiting.closing(view))
        del self._texts[view.sequence_id]
