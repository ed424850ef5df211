"""Drafters that propose a block at a time from the target's own activations: DSpark and its kin.

A block is the anchor (the last committed token) and masks. Its rows see the context, which is made
of the features of committed tokens before the anchor (the anchor has none yet), and each other.
One pass gives the base logits of all of them; a chain of tiny steps then chooses token by token
(``agentspec_kernels/draft_block``). Source: DSpark paper (arXiv 2607.05147), section 3.

Legend: N tapped features, R rows, E hidden size, U rows of draft logits.
Read next: ``speller.py`` (the chain, under a grammar), ``backbone.py`` (what computes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from .backbone import MOST_BLOCKS, Backbone, Block, Chunk, block_table, scratch
from .base import EMPTY, FORCED, DraftView, Observed, Proposal
from .context import Context, Plane
from .rates import PlaceRates
from .speller import Rows, Speller
from .tree import block_tree
from .waiting import Waiting

if TYPE_CHECKING:
    import numpy.typing as npt
    from agentspec_kernels.draft_block import Chain

    from .block_config import BlockConfig

_LEAST_CONTEXT = 16
_WINDOW = 128
"""Tokens of a prefix hit without the plane that are computed again, once for each cached text:
about 60 ms of the embedded model. A draft by heart had an accepted length of 1.98 with 16 tokens of
context, 2.11 with 64, 2.25 with 128 and 2.30 with all."""
_WIDEST_GAP = 64
_LEAST_SURVIVAL = 0.02
"""Below it a tree's token isn't drafted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """How a block draft is used.

    blind: ignore the grammar while drafting, to measure what knowing it is worth.
    forced: known tokens that have no features yet stand before the masks where the grammar forced
    them, or another source drafted them. "anchor": only the last of them is put into the block, at
    its own position, so that the block looks as in training; "block": all of them, if they leave
    room for masks.
    candidates: tokens of each row that the Markov head looks at. head_rows: only the first so many
    token ids are drafted (of a BPE vocabulary those merged first, so the frequent ones); None: all.
    branches: most tokens that follow the same one; above 1 a draft without Markov head is a tree of
    its rows' most probable tokens. None: 4 for JetSpec, else 1.
    bits: 8 or 4 a weight of the layers and the head, on the int8 kernels: 4 are half to read.
    Every choice is lossless.
    """

    blind: bool = False
    forced: Literal["anchor", "block"] = "anchor"
    candidates: int = 128
    head_rows: int | None = None
    branches: int | None = None
    bits: int = 4


@dataclass(frozen=True, slots=True)
class _Job:
    index: int
    view: DraftView
    head: tuple[int, ...]
    limit: int
    block: Block


class BlockDrafter:
    """A ``TappedDrafter``. name: of the source in reports, also where several are loaded."""

    def __init__(
        self,
        name: str,
        config: BlockConfig,
        backbone: Backbone,
        chain: Chain,
        options: BlockOptions | None = None,
    ):
        self.name = name
        self.config = config
        self.taps = config.taps
        self.options = options or BlockOptions()
        self._backbone = backbone
        self._plane = Plane(backbone.num_pages)
        self._rates = None if config.confidence else PlaceRates()
        self._speller = Speller(name, config, chain, self._rates, blind=self.options.blind)
        self._contexts: dict[int, Context] = {}
        self._waiting = Waiting()
        self._ids = chain.head.target_id
        branches = self.options.branches or (4 if config.method == "jetspec" else 1)
        self._branches = 1 if config.markov_rank else branches

    def open(self, view: DraftView) -> None:
        self._contexts[view.sequence_id] = self._plane.open(view)

    def missing(self, view: DraftView) -> int:
        """See ``taps.Refillable``: a window, where less of it is known."""
        context = self._contexts[view.sequence_id]
        window = min(_WINDOW, context.end)
        return window if context.known < window else 0

    def observe(self, observed: Sequence[Observed]) -> None:
        self._write(self._waiting.take(observed))

    def _write(self, observed: Sequence[Observed]) -> None:
        if observed:
            self._backbone.extend(self._chunks(observed))

    def _chunks(self, observed: Sequence[Observed]) -> list[Chunk]:
        """Noted as known in the plane, and about to be written there."""
        for seen in observed:
            self._plane.extend(self._contexts[seen.view.sequence_id], seen)
        return [Chunk(o.view.pages, o.start, o.features) for o in observed]

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        return self._propose(views, [()] * len(views), limits)

    def propose_behind(
        self, views: Sequence[DraftView], heads: Sequence[Proposal], limits: Sequence[int]
    ) -> list[Proposal]:
        """See ``chaining.Follower``; where heads stand in a block: ``BlockOptions.forced``."""
        return self._propose(views, [head.tokens for head in heads], limits)

    def _propose(
        self,
        views: Sequence[DraftView],
        heads: Sequence[tuple[int, ...]],
        limits: Sequence[int],
    ) -> list[Proposal]:
        chunks = self._chunks(self._waiting.due(view.sequence_id for view in views))
        proposals = [EMPTY] * len(views)
        asked = list(enumerate(zip(views, heads, limits, strict=True)))
        for first in range(0, len(asked), MOST_BLOCKS):
            jobs: list[_Job] = []
            for index, (view, head, limit) in asked[first : first + MOST_BLOCKS]:
                block = self._block(view, head, limit, len(jobs))
                if block is not None:
                    jobs.append(_Job(index, view, head, limit, block))
            if jobs:
                self._run(jobs, chunks, proposals)
                chunks = []
        if chunks:
            self._backbone.extend(chunks)
        return proposals

    def _run(self, jobs: list[_Job], chunks: Sequence[Chunk], proposals: list[Proposal]) -> None:
        hidden, logits = self._backbone.run([job.block for job in jobs], chunks)
        end = 0
        for job in jobs:
            start, end = end, end + len(job.block.rows)
            if self._branches > 1:
                proposals[job.index] = self._tree(job, logits[start:end])
                continue
            rows = Rows(hidden[start:end], logits[start:end])
            proposals[job.index] = self._speller.spell(job.view, job.limit, rows, job.head)

    def _tree(self, job: _Job, logits: npt.NDArray) -> Proposal:
        """logits: [R, U] float32. What the grammar forbids is left to the engine's filter. Behind
        another draft it is a chain."""
        scores = torch.from_numpy(logits) / (job.view.sampling.temperature or 1.0)
        return block_tree(
            self.name,
            scores.softmax(1),
            job.limit,
            candidates=1 if job.head else self._branches,
            min_survival=_LEAST_SURVIVAL,
            ids=self._ids,
        )

    def _block(
        self, view: DraftView, head: tuple[int, ...], limit: int, place: int
    ) -> Block | None:
        """A sequence's block behind ``head``, the ``place``-th of a pass; None where it isn't
        drafted."""
        context, config = self._contexts[view.sequence_id], self.config
        length = len(view.tokens) + len(head)
        waiting = length - context.end
        least = min(_LEAST_CONTEXT, context.end)
        if limit < 1 or context.known < least or not 1 <= waiting <= _WIDEST_GAP:
            return None
        if self.options.forced == "anchor" or waiting + config.first_row >= config.block_size:
            waiting = 1
        known = [*view.tokens[-waiting:], *head][-waiting:]
        first = waiting - 1 + config.first_row
        return Block(
            pages=block_table(
                view.pages, context.start, context.end, scratch(self._backbone.num_pages, place)
            ),
            context=context.end - context.start,
            position=length - waiting,
            ids=known + [config.mask_token_id] * (config.block_size - waiting),
            rows=range(first, min(config.block_size, first + limit)),
        )

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        if self._rates is None or proposal.parents is not None or self.name not in proposal.sources:
            return
        before = proposal.sources[: proposal.sources.index(self.name)]
        first = max((i + 1 for i, name in enumerate(before) if name != FORCED), default=0)
        came = view.tokens[len(view.tokens) - committed :]
        masked = view.constraint is not None
        for place, token in enumerate(came[: len(proposal)]):
            stands = token == proposal.tokens[place]
            if proposal.sources[place] == self.name:
                self._rates.record(place - first, masked, stands)
            if not stands:
                break

    def close(self, view: DraftView) -> None:
        self._write(self._waiting.closing(view))
        del self._contexts[view.sequence_id]
