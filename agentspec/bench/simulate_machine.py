"""Machines that are not here: the engine's own code on a clock that follows a cost curve.

``Priced`` runs a real model, so drafts and acceptance are real, and books what each pass would
take on the other machine; python is booked by its own processor time, so that a busy machine does
not disturb. ``Machine`` has no model at all: tokens are two, and the right one is known.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from agentspec.engine.batch import Forward, Span
from agentspec.engine.draft.base import EMPTY, DraftView, Proposal
from agentspec.engine.pricing import Load

if TYPE_CHECKING:
    from agentspec.engine.core import Runner
    from agentspec.engine.cost import CostCurve

RIGHT, WRONG = 0, 1


@dataclass(slots=True)
class Clock:
    """Nanoseconds that were booked, and those that ``ticking`` adds by itself."""

    booked_ns: int = 0
    ticking: Callable[[], int] | None = None

    def __call__(self) -> int:
        return self.booked_ns + (self.ticking() if self.ticking else 0)

    def seconds(self) -> float:
        return self() / 1e9

    def book(self, seconds: float) -> None:
        self.booked_ns += round(seconds * 1e9)


def _load(spans: Sequence[Span]) -> Load:
    return Load.of((len(span.tokens), span.start) for span in spans)


def pass_seconds(curve: CostCurve, spans: Sequence[Span]) -> float:
    load = _load(spans)
    attended = sum(curve.attend(rows) * tokens for rows, tokens in load.contexts.items())
    return curve.seconds(load.rows) + curve.span_s * load.spans + attended


class Priced:
    """Same face as the runner inside it. Its passes take what ``curve`` says, on ``clock``."""

    def __init__(self, inner: Runner, curve: CostCurve, clock: Clock):
        self._inner, self._curve, self._clock = inner, curve, clock
        self.vocab_size, self.page_tokens = inner.vocab_size, inner.page_tokens
        self.num_pages, self.context_tokens = inner.num_pages, inner.context_tokens
        self.exact = inner.exact
        clock.ticking = time.thread_time_ns

    def forward(self, spans: Sequence[Span]) -> Forward:
        before_ns = time.thread_time_ns()
        forward = self._inner.forward(spans)
        self._clock.booked_ns -= time.thread_time_ns() - before_ns
        self._clock.book(pass_seconds(self._curve, spans))
        return forward

    def compact(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        self._inner.compact(pages, moves)


@dataclass(slots=True)
class Machine:
    """A runner without a model: ``RIGHT`` is always the target's token. Greedy decoding only.

    curve: of passes. clock: what they are booked on.
    """

    curve: CostCurve
    clock: Clock
    num_pages: int
    context_tokens: int = 1 << 20
    page_tokens: int = 64
    vocab_size: int = 2
    exact: bool = True
    passes: int = 0

    def forward(self, spans: Sequence[Span], /) -> Forward:
        """R rows of V = 2 logits, float32."""
        self.passes += 1
        self.clock.book(pass_seconds(self.curve, spans))
        rows = sum(len(span.logit_rows) for span in spans)
        return Forward(torch.tensor([[1.0, 0.0]]).expand(rows, 2))

    def compact(self, pages: Sequence[int], moves: Sequence[tuple[int, int]], /) -> None:
        """There is no K/V to move."""


@dataclass(slots=True)
class Draws:
    """A source whose tokens are right by chance, as a sequence's own rate has it.

    rates: P(token k accepted | those before it), by place, of an average sequence. spread: standard
    deviation of a sequence's log-odds around them. noise: of each token's log-odds around the
    sequence's. cost_s: seconds of a draft by the sequences asked, booked on ``clock``. by_token: it
    is that of the longest draft, shorter ones take their share (a pass for each token); else every
    draft takes it whole (a block in one pass). truth: the rate that all tokens really have, where
    the confidences are wrong; None: they are right. first: the number of the sequence with which
    the draws begin.
    """

    rates: Sequence[float]
    clock: Clock
    cost_s: Callable[[int], float]
    spread: float = 0.0
    noise: float = 0.0
    truth: float | None = None
    by_token: bool = False
    seed: int = 0
    first: int = 0
    name: str = "draws"
    taps: tuple[int, ...] = ()
    _odds: dict[int, tuple[float, random.Random]] = field(default_factory=dict)

    def open(self, view: DraftView) -> None:
        draw = random.Random(self.seed * 1_000_003 + view.sequence_id - self.first)
        self._odds[view.sequence_id] = (draw.gauss(0.0, self.spread), draw)

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        if views and any(limits):
            share = min(max(limits) / len(self.rates), 1.0) if self.by_token else 1.0
            self.clock.book(share * self.cost_s(len(views)))
        return [self._one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _one(self, view: DraftView, limit: int) -> Proposal:
        count = min(limit, len(self.rates))
        if count <= 0:
            return EMPTY
        shift, _ = self._odds[view.sequence_id]
        # The same place is drafted the same way whenever it is asked: runs differ by their widths.
        number = self.seed * 7919 + view.sequence_id - self.first
        draw = random.Random(number * 1_000_033 + len(view.tokens))
        tokens, confidence = [], []
        for rate in self.rates[:count]:
            own = moved(rate, shift)
            true = moved(own, draw.gauss(0.0, self.noise)) if self.noise else own
            chance = true if self.truth is None else self.truth
            tokens.append(RIGHT if draw.random() < chance else WRONG)
            confidence.append(true)
        return Proposal(tuple(tokens), (self.name,) * count, tuple(confidence))

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        pass

    def close(self, view: DraftView) -> None:
        del self._odds[view.sequence_id]


def moved(rate: float, odds: float) -> float:
    """``rate`` with its log-odds shifted."""
    if odds == 0.0 or not 0.0 < rate < 1.0:
        return rate
    scaled = 2.718281828459045**odds * rate / (1.0 - rate)
    return scaled / (1.0 + scaled)
