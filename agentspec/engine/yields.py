"""What the drafts of a source were worth lately, by place: how the gains of its tokens spread.

Of every place the tokens are kept by tenths of what they promised, so that for any price of a row
one can tell how many would be verified there, and what they would bring.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

_BINS = 10
LEVELS = (0, 1, 2, 3, 5, 7)
"""Tenths of a gain from which on tokens are verified: those that are tried."""
_MEMORY = 0.98
_MOST_AT_ONCE = 4
_MOST_WEIGHT = 1e12
_UNSEEN = 0.8
"""What a place that was never drafted is worth of the one before it, at most."""
_FACTORS = (0.25, 4.0)


class Place(NamedTuple):
    """By ``LEVELS``: of a draft, the tokens at this place that promise so much, and their gains."""

    rows: tuple[float, ...]
    gains: tuple[float, ...]


_FIRST = Place((_UNSEEN,) * len(LEVELS), (_UNSEEN,) * len(LEVELS))


class Yields:
    """Older drafts fade as new ones come (``faded``). A place that isn't asked for any more keeps
    what it was worth beside the one before it."""

    def __init__(self) -> None:
        self._weight = 1.0
        self._asked: list[float] = []
        self._counts: list[list[float]] = []
        self._gains: list[list[float]] = []
        self._before: list[float] = []
        self._known: list[Place] = []  # since the last draft

    def saw(self, gains: Seq[float], width: int, paid: Seq[float] | None = None) -> None:
        """A draft for which ``width`` tokens were asked; it may have ended before.

        paid: rows that each token really costs (a forced one that stands has its row paid for, as
        it would be computed without a draft too); None: one each. Where a span is worth something
        at its end only, its gains are taken as what they are a row on the way there.
        """
        if paid is not None:
            gains = evened(gains, paid)
        self._known = []
        for _ in range(width - len(self._counts)):
            self._asked.append(0.0)
            self._counts.append([0.0] * _BINS)
            self._gains.append([0.0] * _BINS)
            self._before.append(0.0)
        self._asked[width - 1] += self._weight
        for place, gain in enumerate(gains[: width - 1], start=1):
            self._before[place] += self._weight * gain
        for place, gain in enumerate(gains[:width]):
            rows = 1.0 if paid is None else paid[place]
            if rows <= 0.0:
                continue
            bin = min(int(gain / rows * _BINS), _BINS - 1)
            self._counts[place][bin] += self._weight * rows
            self._gains[place][bin] += self._weight * gain

    def faded(self, drafts: int) -> None:
        """A step with so many drafts is over."""
        self._known = []
        self._weight /= _MEMORY ** min(drafts, _MOST_AT_ONCE)
        if self._weight > _MOST_WEIGHT:
            for values in (self._asked, self._before, *self._counts, *self._gains):
                values[:] = [value / self._weight for value in values]
            self._weight = 1.0

    def places(self, most: int) -> Seq[Place]:
        """The first ``most``; those never asked for go on as those before them."""
        if len(self._known) != most:
            self._known = self._worked_out(most)
        return self._known

    def _worked_out(self, most: int) -> list[Place]:
        found: list[Place] = []
        asked = sum(self._asked)
        for place in range(min(most, len(self._counts))):
            if asked <= 0.0:
                break
            factor = 1.0
            if found and self._before[place] > 0.0:
                factor = found[-1].gains[0] * asked / self._before[place]
                factor = min(max(factor, _FACTORS[0]), _FACTORS[1])
            found.append(_place(self._counts[place], self._gains[place], asked / factor))
            asked -= self._asked[place]
        last, above = (found or [_FIRST])[-1], found[-2].gains[0] if len(found) > 1 else 1.0
        share = min(_UNSEEN, last.gains[0] / above) if above else 0.0
        while len(found) < most:
            last = Place(*(tuple(share * value for value in values) for values in last))
            found.append(last)
        return found


def evened(gains: Seq[float], paid: Seq[float]) -> list[float]:
    """The same gains in all, so spread that those of a paid row never rise (as ``budget``
    joins ranks)."""
    blocks: list[tuple[float, float, int]] = []
    for gain, rows in zip(gains, paid, strict=True):
        count = 1
        while blocks and blocks[-1][0] * rows <= gain * blocks[-1][1]:
            more, length, others = blocks.pop()
            gain, rows, count = gain + more, rows + length, count + others
        blocks.append((gain, rows, count))
    found: list[float] = []
    for gain, rows, count in blocks:
        own = paid[len(found) : len(found) + count]
        found += [gain * (part / rows if rows > 0.0 else 1.0 / count) for part in own]
    return found


def _place(counts: Seq[float], gains: Seq[float], asked: float) -> Place:
    return Place(
        tuple(sum(counts[level:]) / asked for level in LEVELS),
        tuple(sum(gains[level:]) / asked for level in LEVELS),
    )
