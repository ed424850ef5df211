"""One sequence's draft while it is drawn token by token, as the target itself would draw.

The draft's scores go through the sampling of the request (bias, penalties, mask, temperature,
truncation): then ``draft_probs`` lie on what the target may say, and with the seed's noise the two
choose the same token wherever their distributions agree.

Legend: K drafted tokens, V vocabulary.
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor

from agentspec.engine.sampling import (
    Entropy,
    History,
    NoTokenAllowed,
    argmax,
    best_token,
    target_probs,
)
from agentspec.engine.walk import Walk

from .base import EMPTY, DraftView, Proposal


class Drawing:
    """A context manager; within it the view's constraint may stand further on.

    limit: most tokens. vocab: V of the target. min_survival: the draft ends where the product of
    its confidences falls below it, which is decided before a token is drawn where the draft is
    dense: whether a token is drawn must not hang on the token.
    """

    def __init__(
        self,
        name: str,
        view: DraftView,
        limit: int,
        vocab: int,
        entropy: Entropy,
        min_survival: float = 0.0,
    ):
        self.view = view
        self.limit = limit
        self.tokens: list[int] = []
        self.ended = limit <= 0
        self._name = name
        self._vocab = vocab
        self._entropy = entropy
        self._min_survival = min_survival
        self._survival = 1.0
        self._confidence: list[float] = []
        self._rows: list[Tensor] = []
        self._params = view.sampling
        self._dense = not view.sampling.greedy and not entropy.seeded
        self._walk = Walk(view.constraint, view.stop_ids)
        self._history = None
        if self._params.penalised or self._params.logit_bias:
            self._history = History(self._params, view.tokens, view.prompt_length, vocab)

    def __enter__(self) -> Drawing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._walk.__exit__(kind, error, trace)

    def draw(self, scores: Tensor) -> list[int]:
        """Draw the next token from ``scores`` [V], the draft's raw logits, unchanged.

        Returns it and what the grammar forces behind it, which is what the draft model is to be fed
        next; nothing where the draft has ``ended``, which a last token may have done.
        """
        before = len(self.tokens)
        try:
            chosen = self._choose(fitted(scores, self._vocab))
        except NoTokenAllowed:  # the draft knows none of what the grammar allows here
            chosen = None
        if chosen is None:
            self.ended = True
            return []
        self._append(*chosen)
        if not self.ended:
            for token in self._walk.forced(self.limit - len(self.tokens)):
                self._append(token, 1.0, None)
        return self.tokens[before:]

    def _choose(self, scores: Tensor) -> tuple[int, float, Tensor | None] | None:
        """Token, confidence and, of a dense draft, its distribution; None: better no token."""
        if self._history is not None:
            scores = self._history.adjust(scores)
        if self._params.greedy:
            token, confidence = self._best(scores)
            return (token, confidence, None) if self._pays(confidence) else None
        probs = target_probs(scores, self._params, self._walk.allowed(self._vocab))
        position = len(self.view.tokens) + len(self.tokens)
        if not self._dense:
            token = self._entropy.draft(position, probs)
            confidence = float(probs[token])
            return (token, confidence, None) if self._pays(confidence) else None
        confidence = float(probs.max())
        if not self._pays(confidence):
            return None
        return self._entropy.draft(position, probs), confidence, probs

    def _pays(self, confidence: float) -> bool:
        self._survival *= min(confidence, 1.0)
        return self._survival >= self._min_survival

    def _best(self, scores: Tensor) -> tuple[int, float]:
        """The masked argmax of [V] and its probability; a mask is built where it must be."""
        best = argmax(scores)
        if not self._walk.allows(best):
            allowed = self._walk.allowed(self._vocab)
            best = best_token(scores, allowed)
            if allowed is not None:
                scores = scores[allowed]
                return best, float(torch.exp(scores.max() - scores.logsumexp(0)))
        return best, float(torch.exp(scores[best] - scores.logsumexp(0)))

    def _append(self, token: int, confidence: float, probs: Tensor | None) -> None:
        self.tokens.append(token)
        self._confidence.append(min(confidence, 1.0))
        if self._dense:
            self._rows.append(torch.zeros_like(self._rows[-1]) if probs is None else probs)
        if self._history is not None:
            self._history.push(token)
        if not self._walk.advance(token) or len(self.tokens) >= self.limit:
            self.ended = True

    def result(self) -> Proposal:
        """What was drawn."""
        count = len(self.tokens)
        if count == 0:
            return EMPTY
        return Proposal(
            tuple(self.tokens),
            (self._name,) * count,
            tuple(self._confidence),
            torch.stack(self._rows) if self._dense else None,
        )


def fitted(scores: Tensor, vocab: int) -> Tensor:
    """``scores`` [n] as [V]: padding of a vocabulary is cut off, or said never to be drawn."""
    if scores.numel() >= vocab:
        return scores[:vocab]
    return torch.nn.functional.pad(scores, (0, vocab - scores.numel()), value=-torch.inf)
