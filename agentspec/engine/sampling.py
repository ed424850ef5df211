"""From logits to ``target_probs``, and the randomness that samples from them.

Legend: V vocabulary, W = ceil(V / 32) mask words.

The order is fixed: (1) ``logit_bias`` is added to the raw logits; (2) repetition penalty over
prompt and output (positive scores divided, others multiplied: CTRL, arXiv 1909.05858, section 4.1);
(3) frequency and presence penalty over the output (OpenAI's formula: score - count * frequency -
(count > 0) * presence); (4) grammar mask; (5) temperature; (6) top_k; (7) top_p; (8) min_p, each of
6-8 on what the one before left. The softmax has the dtype of the logits (float32, or float64).
Ties fall to the smaller token id everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b

import torch
from agentspec_kernels.gumbel import gumbel_argmax
from torch import Tensor

from agentspec.wire.errors import GenerationFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one sequence samples. temperature 0 is greedy.

    top_k 0 and top_p 1 and min_p 0 are off. seed None: rejection sampling with entropy of its own;
    given: position-keyed Gumbel noise: the text does not depend on drafts (arXiv 2408.07978).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """Whether scores depend on the tokens so far."""
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )


class NoTokenAllowed(GenerationFailed):
    """A row from which nothing can be sampled: every token forbidden, or logits not finite."""


class Purpose(IntEnum):
    """What a random number is for; numbers for different purposes are independent."""

    ACCEPT = 1
    SAMPLE = 2
    DRAFT = 3


@dataclass(frozen=True, slots=True)
class Entropy:
    """The randomness of one sequence: a function of (key, position, purpose), without state.

    position: absolute index of the token that is decided.
    seeded: tokens are chosen by Gumbel noise.
    """

    key: int
    seeded: bool

    @classmethod
    def of(cls, seed: int | None, stream: int = 0) -> Entropy:
        """For one sequence. ``stream`` tells apart the n answers of one request.

        seed None draws a key from the system once, so two calls give different randomness.
        """
        if seed is None:
            return cls(int.from_bytes(os.urandom(8), "little"), False)
        if stream == 0:
            return cls(seed, True)
        digest = blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
        return cls(int.from_bytes(digest, "little"), True)

    def uniform(self, position: int, purpose: Purpose, attempt: int = 0) -> float:
        """Uniform in [0, 1), 53 random bits; another one for each attempt at a position."""
        again = f"/{attempt}" if attempt else ""
        text = f"{self.key}/{position}/{int(purpose)}{again}".encode()
        return (int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 11) * 2.0**-53

    def coin(self, position: int, probability: float, attempt: int = 0) -> bool:
        """True with ``probability``; always True at 1 and more, never at 0."""
        return self.uniform(position, Purpose.ACCEPT, attempt) < probability

    def choose(self, position: int, probs: Tensor) -> int:
        """A token drawn from ``probs`` [V] (any float dtype, sum positive).

        seeded: argmax(log probs + noise(key, position)). Else the inverse of the distribution
        function in float64, which never gives a token of probability 0.
        """
        if self.seeded:
            return gumbel_argmax(probs, self.key, position)
        return inverse_cdf(probs, self.uniform(position, Purpose.SAMPLE))

    def draft(self, position: int, probs: Tensor) -> int:
        """A token that a drafter draws from ``probs`` [V] for ``position``.

        seeded: what ``choose`` takes, so that drafts of the target's own distribution stand. Else
        independent of all that verification asks.
        """
        if self.seeded:
            return gumbel_argmax(probs, self.key, position)
        return inverse_cdf(probs, self.uniform(position, Purpose.DRAFT))


def inverse_cdf(probs: Tensor, u: float) -> int:
    """The token whose interval of the distribution function of ``probs`` [V] holds u in [0, 1)."""
    cdf = probs.double().cumsum(0)
    index = int(torch.searchsorted(cdf, cdf[-1:] * u, right=True))
    return index if index < probs.numel() else int(probs.argmax())


class History:
    """The token counts that penalties look at; grows by drafts as if they were committed."""

    def __init__(
        self, params: SamplingParams, tokens: Sequence[int], prompt_length: int, vocab: int
    ):
        self._params = params
        self._bias = None
        if params.logit_bias:
            self._bias = (
                torch.tensor(list(params.logit_bias), dtype=torch.int64),
                torch.tensor(list(params.logit_bias.values()), dtype=torch.float64),
            )
        self._output = self._seen = None
        if params.penalised:
            self._output = _counts(tokens[prompt_length:], vocab)
            self._seen = _counts(tokens, vocab) > 0

    def push(self, token: int) -> None:
        if self._output is not None and self._seen is not None:
            self._output[token] += 1
            self._seen[token] = True

    def adjust(self, row: Tensor) -> Tensor:
        """Steps 1 to 3 on ``row`` [V], unchanged: new, same dtype; ``row`` if nothing applies."""
        params = self._params
        if self._bias is not None:
            ids, values = self._bias
            row = row.index_add(0, ids.to(row.device), values.to(row))
        if self._output is not None and self._seen is not None:
            if params.repetition_penalty != 1.0:
                scaled = torch.where(
                    row > 0, row / params.repetition_penalty, row * params.repetition_penalty
                )
                row = torch.where(self._seen.to(row.device), scaled, row)
            counts = self._output.to(row)
            row = row - counts * params.frequency_penalty
            row = row - (counts > 0).to(row) * params.presence_penalty
        return row


def _counts(tokens: Iterable[int], vocab: int) -> Tensor:
    """Occurrences a token: [V] int64."""
    return torch.bincount(torch.tensor(list(tokens), dtype=torch.int64), minlength=vocab)


def unpack_mask(words: Tensor, vocab: int) -> Tensor:
    """Mask words [W] int32 (bit v % 32 of word v // 32) as [V] bool."""
    return _bit_table()[words.contiguous().view(torch.uint8).long()].reshape(-1)[:vocab]


@lru_cache(maxsize=1)
def _bit_table() -> Tensor:
    """[256, 8] bool: the bits of each byte, lowest first."""
    return (torch.arange(256).unsqueeze(1) >> torch.arange(8)).bitwise_and(1).bool()


def argmax(scores: Tensor) -> int:
    """The smallest index of the largest of ``scores`` [V], float32 or float64."""
    # torch's own takes ten times as long on a CPU: 43 us of 49,152 tokens, a row.
    return int(scores.numpy().argmax()) if scores.device.type == "cpu" else int(scores.argmax())


def best_token(scores: Tensor, allowed: Tensor | None = None) -> int:
    """The argmax of ``scores`` [V] among ``allowed`` [V] bool. Raises ``NoTokenAllowed``."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = argmax(scores)
    check_finite(float(scores[best]))
    return best


def check_finite(best_score: float) -> None:
    """Raise ``NoTokenAllowed`` unless the best score of a row is a number."""
    if not -torch.inf < best_score < torch.inf:
        raise NoTokenAllowed(f"no token can be sampled here (best score {best_score})")


def target_probs(scores: Tensor, params: SamplingParams, allowed: Tensor | None = None) -> Tensor:
    """Steps 4 to 8: the distribution of the next token, new [V] of the dtype of ``scores`` [V].

    scores: after ``History.adjust``; unchanged. allowed: [V] bool or None. At temperature 0 all
    mass lies on the best allowed token. Raises ``NoTokenAllowed``.
    """
    if params.greedy:
        probs = torch.zeros_like(scores)
        probs[best_token(scores, allowed)] = 1.0
        return probs
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = scores.max()
    check_finite(float(best))
    # The best score is taken off first: no temperature, however small, overflows.
    probs = torch.softmax((scores - best) / params.temperature, dim=0)
    return _truncate(probs, params)


def _truncate(probs: Tensor, params: SamplingParams) -> Tensor:
    """top_k, top_p and min_p on ``probs`` [V], renormalised."""
    if 0 < params.top_k < probs.numel():
        probs = _renormalise(probs, _most_probable(probs, params.top_k))
    if params.top_p < 1.0:
        probs = _renormalise(probs, _most_probable(probs, _nucleus_size(probs, params.top_p)))
    if params.min_p > 0.0:
        probs = _renormalise(probs, probs >= params.min_p * probs.max())
    return probs


def _renormalise(probs: Tensor, keep: Tensor) -> Tensor:
    kept = torch.where(keep, probs, 0.0)
    return kept / kept.sum()


def _most_probable(probs: Tensor, count: int) -> Tensor:
    """Exactly ``count`` tokens of ``probs`` [V] as [V] bool; ties go to the smaller id."""
    least = probs.topk(count).values[-1]
    keep = probs > least
    ties = probs == least
    return keep | (ties & (ties.cumsum(0) <= count - keep.sum()))


def _nucleus_size(probs: Tensor, top_p: float) -> int:
    """How many of the most probable tokens it takes to hold a mass of ``top_p``; at least 1."""
    for some in (256, 4096):  # a full sort of 50k tokens costs milliseconds
        if some < probs.numel():
            before = _mass_before(probs.topk(some).values)
            if before[-1] >= top_p:
                return int((before < top_p).sum())
    before = _mass_before(probs.sort(descending=True).values)
    return max(1, int((before < top_p).sum()))


def _mass_before(descending: Tensor) -> Tensor:
    """Float64 sum of the entries before each one of [N]."""
    values = descending.double()
    return values.cumsum(0) - values
