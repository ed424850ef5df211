"""From the rows of a block to a proposal, under the sequence's sampling and its grammar.

Legend: K drafted tokens, R rows, E hidden size, U rows of draft logits, V vocabulary, W mask words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from agentspec_kernels.draft_block import ChainRequest, ChainResult, Sampling

from agentspec.engine.sampling import Purpose
from agentspec.engine.walk import Walk

from .base import EMPTY, FORCED, DraftView, Proposal

if TYPE_CHECKING:
    from agentspec_kernels.draft_block import Chain
    from torch import Tensor

    from .block_config import BlockConfig
    from .rates import PlaceRates


@dataclass(frozen=True, slots=True)
class Rows:
    """hidden [R, E] and logits [R, U] float32 of the rows that propose, in order."""

    hidden: npt.NDArray
    logits: npt.NDArray

    def __len__(self) -> int:
        return self.logits.shape[0]


@dataclass(frozen=True, slots=True)
class _Task:
    """What is to be spelt. head: what another source drafted before it, if it did. previous: the
    token before the first row's; position: of the first row's token. state: [r] of the rnn head.
    """

    view: DraftView
    rows: Rows
    head: Sequence[int]
    sampling: Sampling
    state: npt.NDArray | None

    @property
    def previous(self) -> int:
        return self.head[-1] if self.head else self.view.tokens[-1]

    @property
    def position(self) -> int:
        return len(self.view.tokens) + len(self.head)


@dataclass(slots=True)
class _Draft:
    """A proposal being written. dense: for each token (ids, probs) of [candidates], or None."""

    tokens: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    dense: list[tuple[npt.NDArray, npt.NDArray] | None] = field(default_factory=list)

    def add(self, token: int, source: str, confidence: float, dense=None) -> None:
        self.tokens.append(token)
        self.sources.append(source)
        self.confidence.append(confidence)
        self.dense.append(dense)

    def proposal(self, vocab: int, dense: bool) -> Proposal:
        if not self.tokens:
            return EMPTY
        return Proposal(
            tuple(self.tokens),
            tuple(self.sources),
            tuple(self.confidence),
            self._probs(vocab) if dense else None,
        )

    def _probs(self, vocab: int) -> Tensor:
        """[K, V] float32; zeros for a forced token."""
        probs = torch.zeros(len(self.tokens), vocab)
        table = probs.numpy()
        for row, kept in zip(table, self.dense, strict=True):
            if kept is not None:
                ids, values = kept
                row[ids[ids >= 0]] = values[ids >= 0]
        return probs


class Speller:
    """Chooses tokens row by row.

    Greedy is the argmax; with a seed it is the argmax under the target's own noise, so that the
    draft says what the target would where their logits agree; else tokens are drawn, and the
    proposal tells from what. blind: the grammar is not looked at.
    """

    def __init__(
        self,
        name: str,
        config: BlockConfig,
        chain: Chain,
        rates: PlaceRates | None,
        *,
        blind: bool = False,
    ):
        self._name = name
        self._config = config
        self._chain = chain
        self._rates = rates
        self._blind = blind
        self._words = -(-config.shape.vocab // 32)

    def spell(self, view: DraftView, limit: int, rows: Rows, head: Sequence[int] = ()) -> Proposal:
        """At most ``limit`` tokens for what follows the committed ones and ``head``."""
        task = _Task(view, rows, head, _sampling(view), self._state())
        draft = _Draft()
        if view.constraint is None or self._blind:
            self._freely(draft, task)
        else:
            self._walk(draft, task, limit)
        return draft.proposal(self._config.shape.vocab, task.sampling.mode == "dense")

    def _freely(self, draft: _Draft, task: _Task) -> None:
        """All rows in one call; nothing follows a token that ends the text."""
        result = self._ask(task, 0, len(task.rows), task.previous, None)
        for place, token in enumerate(result.tokens):
            self._take(draft, result, place, place, masked=False)
            if token in task.view.stop_ids:
                break

    def _walk(self, draft: _Draft, task: _Task, limit: int) -> None:
        """Row by row under the grammar's masks. Forced tokens cost no row, and no step."""
        view = task.view
        with Walk(view.constraint, view.stop_ids) as walk:
            if not all(walk.allows(token) and walk.advance(token) for token in task.head):
                return
            while (place := len(draft.tokens)) < limit:
                span = walk.forced(limit - place)
                for token in span:
                    draft.add(token, FORCED, 1.0)
                    walk.advance(token)
                if span:
                    continue
                if place >= len(task.rows):
                    break
                words = walk.words(self._words)
                mask = None if words is None else words.numpy().view(np.uint32)
                previous = draft.tokens[-1] if draft.tokens else task.previous
                result = self._ask(task, place, 1, previous, mask)
                if not result.tokens:
                    break
                self._take(draft, result, 0, place, masked=mask is not None)
                if not walk.advance(result.tokens[0]):
                    break

    def _state(self) -> npt.NDArray | None:
        head = self._chain.head
        return np.zeros(head.rank, np.float32) if head.markov == "rnn" else None

    def _ask(
        self, task: _Task, place: int, count: int, previous: int, mask: npt.NDArray | None
    ) -> ChainResult:
        """The chain over rows place .. place + count - 1. mask: [W] uint32."""
        position, uniform = task.position + place, None
        if task.sampling.mode == "dense":
            uniform = np.array(
                [task.view.entropy.uniform(position + i, Purpose.DRAFT) for i in range(count)]
            )
        return self._chain.run(
            ChainRequest(
                logits=task.rows.logits[place : place + count],
                hidden=task.rows.hidden[place : place + count],
                previous=previous,
                position=position,
                sampling=task.sampling,
                mask=mask,
                state=task.state,
                uniform=uniform,
            )
        )

    def _take(
        self, draft: _Draft, result: ChainResult, row: int, place: int, *, masked: bool
    ) -> None:
        dense = None
        if result.ids is not None and result.probs is not None:
            dense = result.ids[row], result.probs[row]
        confidence = self._confidence(float(result.confidence[row]), place, masked)
        draft.add(result.tokens[row], self._name, confidence, dense)

    def _confidence(self, logit: float, place: int, masked: bool) -> float:
        if self._rates is not None:
            return self._rates.confidence(place, masked)
        table = self._config.masked_temperatures if masked else self._config.temperatures
        temperature = table[min(place, len(table) - 1)] if table else 1.0
        scaled = max(min(logit / temperature, 30.0), -30.0)
        return 1.0 / (1.0 + math.exp(-scaled))


def _sampling(view: DraftView) -> Sampling:
    """As the sequence samples. Penalties and biases are left to the target."""
    params = view.sampling
    if params.greedy:
        return Sampling()
    return Sampling(
        mode="noise" if view.entropy.seeded else "dense",
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        seed=view.entropy.key,
    )
