"""Features that a draft was shown, kept until its K/V of them is wanted.

A pass of plain decoding brings one row; to make K and V of it at once costs as much as of sixteen.
So few rows wait: until their draft is asked, until they are sixteen, or until the sequence closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from .backbone import PAGE
from .base import DraftView, Observed

MOST_ROWS = 16


class Waiting:
    """By sequence, in order of position, without gaps."""

    def __init__(self) -> None:
        self._held: dict[int, list[Observed]] = {}

    def take(self, observed: Sequence[Observed]) -> list[Observed]:
        """What is due now, in order; the rest waits. Features that wait are copied."""
        due: list[Observed] = []
        for seen in observed:
            key = seen.view.sequence_id
            held = self._held.get(key, [])
            if held and held[-1].end != seen.start:
                due.append(_joined(self._held.pop(key)))
                held = []
            if sum(one.end - one.start for one in held) + seen.end - seen.start >= MOST_ROWS:
                self._held.pop(key, None)
                due.append(_joined([*held, seen]))
            else:
                copied = Observed(seen.view, seen.start, seen.features.clone())
                self._held.setdefault(key, held).append(copied)
        return due

    def due(self, sequence_ids: Iterable[int]) -> list[Observed]:
        """What waits of these sequences."""
        return [_joined(self._held.pop(key)) for key in sequence_ids if key in self._held]

    def closing(self, view: DraftView) -> list[Observed]:
        """What waits of a sequence that closes: for the next turn, which finds its pages. Nothing
        where they are gone already (it was preempted)."""
        return [one for one in self.due([view.sequence_id]) if one.end <= len(view.pages) * PAGE]


def _joined(parts: Sequence[Observed]) -> Observed:
    if len(parts) == 1:
        return parts[0]
    return Observed(parts[-1].view, parts[0].start, torch.cat([one.features for one in parts]))
