"""The ``ngram`` drafter: prompt lookup, the simplest rival.

What followed the latest earlier occurrence of the last n tokens is drafted, for the largest n that
has one (prompt lookup decoding; no counts, no earlier turns).
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import EMPTY, DraftView, Proposal


class NgramDrafter:
    """A ``Drafter`` without a model. Its drafts are one-hot.

    max_n, min_n: lengths of the tokens that must match, tried from the longest.
    confidence: of each drafted token, the same for all.
    """

    name = "ngram"
    taps: tuple[int, ...] = ()

    def __init__(self, *, max_n: int = 4, min_n: int = 2, confidence: float = 0.7):
        assert 1 <= min_n <= max_n
        self._sizes = range(max_n, min_n - 1, -1)
        self._confidence = confidence
        self._texts: dict[int, _Index] = {}

    def open(self, view: DraftView) -> None:
        self._texts[view.sequence_id] = _Index(self._sizes)
        self._texts[view.sequence_id].extend(view.tokens)

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        return [self._propose(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _propose(self, view: DraftView, limit: int) -> Proposal:
        start = self._texts[view.sequence_id].continuation
        if start is None or limit <= 0:
            return EMPTY
        tokens = tuple(view.tokens[start : start + limit])
        return Proposal(tokens, (self.name,) * len(tokens), (self._confidence,) * len(tokens))

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        self._texts[view.sequence_id].extend(view.tokens)

    def close(self, view: DraftView) -> None:
        del self._texts[view.sequence_id]


class _Index:
    """n-gram -> position after its latest occurrence."""

    def __init__(self, sizes: range):
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in sizes}
        self._size = 0
        self.continuation: int | None = None
        """Where the text goes on after the latest earlier occurrence of its end, or None."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Index ``tokens``, the whole text so far, from where the last call ended."""
        for end in range(self._size + 1, len(tokens) + 1):
            self.continuation = None
            for n, after in self._after.items():
                if end < n:
                    continue
                gram = tuple(tokens[end - n : end])
                if self.continuation is None:
                    self.continuation = after.get(gram)
                after[gram] = end
        self._size = len(tokens)
