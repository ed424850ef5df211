"""Drafters that need a model, over toy models whose every probability the text decides.

Legend: V vocabulary, E hidden size (1 here), R rows.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch

from agentspec.engine.batch import Forward
from agentspec.engine.draft.base import Observed
from agentspec.engine.draft.draft_model import DraftModelDrafter
from agentspec.engine.draft.steps import StepDrafter
from tests.engine.draft.toyworld import numbers

PAGE = 16


def scores(vocab: int, *key: object) -> torch.Tensor:
    """[V] float64."""
    values = [3.0 * x for x in numbers(vocab, "toy model", *key)]
    return torch.tensor(values, dtype=torch.float64)


class TableRunner:
    """A runner whose K/V is the token itself; its logits are ``scores`` of the text so far."""

    page_tokens, num_pages, context_tokens, exact = 4, 32, 100, True

    def __init__(self, vocab: int):
        self.vocab_size = vocab
        self._slots: dict[int, int] = {}

    def _slot(self, pages, position: int) -> int:
        return pages[position // 4] * 4 + position % 4

    def forward(self, spans, /) -> Forward:
        rows = []
        for span in spans:
            for i, token in enumerate(span.tokens):
                self._slots[self._slot(span.pages, span.start + i)] = token
            for row in span.logit_rows:
                end = span.start + row + 1
                text = [self._slots[self._slot(span.pages, p)] for p in range(end)]
                rows.append(scores(self.vocab_size, *text))
        return Forward(torch.stack(rows) if rows else torch.zeros(0, self.vocab_size))

    def compact(self, pages, moves, /) -> None:
        raise AssertionError("a draft model verifies nothing")


class TableSteps:
    """A ``StepBackbone`` whose K/V is the token of a row; what is carried counts rows."""

    num_pages = 8

    def __init__(self, vocab: int):
        self.vocab = vocab
        self._slots: dict[int, int] = {}

    def _slot(self, pages, row: int) -> int:
        return pages[row // PAGE] * PAGE + row % PAGE

    def extend(self, chunks) -> torch.Tensor:
        for chunk in chunks:
            for i, token in enumerate(chunk.tokens):
                self._slots[self._slot(chunk.pages, chunk.start + i)] = token
        return torch.tensor([[float(c.start + len(c.tokens))] for c in chunks])

    def run(self, rows) -> tuple[torch.Tensor, torch.Tensor]:
        logits = []
        for row in rows:
            assert row.slot == row.position and float(row.carried[0]) == row.position + 1
            self._slots[self._slot(row.pages, row.slot)] = row.token
            seen = [self._slots[self._slot(row.pages, i)] for i in range(row.slot + 1)]
            if row.wanted:
                logits.append(scores(self.vocab, *seen))
        carried = torch.stack([row.carried + 1 for row in rows])
        return carried, torch.stack(logits) if logits else torch.zeros(0, self.vocab)


class ToySteps(StepDrafter):
    """Shown the features of every committed position but the last, as the engine does."""

    def __init__(self, vocab: int):
        config = SimpleNamespace(shape=SimpleNamespace(vocab=vocab), steps=3)
        super().__init__(
            "steps",
            config,  # pyright: ignore[reportArgumentType]
            TableSteps(vocab),
            taps=(0,),
            target_ids=torch.arange(vocab),
            min_survival=0.0,
        )

    def propose(self, views, limits):
        for view in views:
            view.pages, view.page_epochs = range(4), [1] * 8
            end = self._texts[view.sequence_id].context.end
            missing = len(view.tokens) - 1 - end
            if missing:
                self.observe([Observed(view, end, torch.zeros(missing, 1))])
        return super().propose(views, limits)


def draft_model(vocab: int) -> DraftModelDrafter:
    return DraftModelDrafter(TableRunner(vocab), min_survival=0.0, max_tokens=3)
