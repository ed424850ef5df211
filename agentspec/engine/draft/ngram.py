"""The ``ngram`` drafter: prompt lookup, the simplest rival.

What followed the latest earlier occurrence of the last n tokens is drafted, for the largest n that
has one. No counts of branches, no earlier turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import EMPTY, DraftView, Proposal
from .calibration import Calibration, Evidence


class NgramDrafter:
    """A ``Drafter`` without a model. Its drafts are one-hot.

    max_n, min_n: how many tokens must match, tried from the most.
    """

    name = "ngram"
    taps: tuple[int, ...] = ()

    def __init__(self, *, max_n: int = 4, min_n: int = 2):
        assert 1 <= min_n <= max_n
        self._sizes = range(max_n, min_n - 1, -1)
        self._calibration = Calibration()
        self._texts: dict[int, _Index] = {}

    def open(self, view: DraftView) -> None:
        self._texts[view.sequence_id] = _Index(self._sizes)
        self._texts[view.sequence_id].extend(view.tokens)

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        return [self._propose(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _propose(self, view: DraftView, limit: int) -> Proposal:
        matched, start = self._texts[view.sequence_id].latest
        if matched == 0 or limit <= 0:
            return EMPTY
        tokens = tuple(view.tokens[start : start + limit])
        confidence = tuple(
            self._calibration.confidence(_evidence(matched + i)) for i in range(len(tokens))
        )
        return Proposal(tokens, (self.name,) * len(tokens), confidence)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        text = self._texts[view.sequence_id]
        came = view.tokens[len(view.tokens) - committed :]
        for i, (token, source) in enumerate(zip(proposal.tokens, proposal.sources, strict=True)):
            if i == len(came):
                break
            if source == self.name:
                self._calibration.record(_evidence(text.latest[0] + i), token == came[i])
            if token != came[i]:
                break
        text.extend(view.tokens)

    def close(self, view: DraftView) -> None:
        del self._texts[view.sequence_id]


def _evidence(matched: int) -> Evidence:
    """One occurrence is looked at, whatever else the text holds."""
    return Evidence(matched, seen=1, places=1)


class _Index:
    """n-gram -> position after its latest occurrence."""

    def __init__(self, sizes: range):
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in sizes}
        self._size = 0
        self.latest = (0, 0)
        """(n, position after it) of the latest earlier occurrence of the text's end; n 0: none."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Index ``tokens``, the whole text so far, from where the last call ended."""
        for end in range(self._size + 1, len(tokens) + 1):
            latest = (0, 0)
            for n, after in self._after.items():
                if end < n:
                    continue
                gram = tuple(tokens[end - n : end])
                if latest[0] == 0 and gram in after:
                    latest = n, after[gram]
                after[gram] = end
            self.latest = latest
        self._size = len(tokens)
