"""What confidences are worth here: corrected online, by source and sequence.

A source's own confidence is right for the traffic it was made for, at best. The correction is a
shift of its log-odds, in two parts that add up: one of the source (apart for free text and within a
grammar, where a mask removes what the target would not say), learnt slowly from all sequences, and
one of the sequence, learnt fast. Each outcome moves them against the error of the prediction, by
what is still unknown of them. Shifts come from committed tokens only, never from the draft they are
applied to: so a cut by a corrected confidence is as safe as by the raw one.

A draft that was not verified teaches too: its first token stands where it is the token that came.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from .draft.base import FORCED, Proposal

BINS = 10
_SOURCE_PRIOR, _SOURCE_LEAST = 0.5, 0.005
_SEQUENCE_PRIOR, _SEQUENCE_LEAST = 0.25, 0.04
"""Variance of a shift before anything was seen, and the least that is kept for change."""
_MOST = 4.0
_EDGE = 1e-4
_SURE = 1.0 - _EDGE


@dataclass(slots=True)
class Bin:
    """Drafted tokens whose survival was predicted within one tenth of 0..1."""

    count: int = 0
    predicted: float = 0.0
    accepted: int = 0


@dataclass(slots=True)
class _Shift:
    """An estimate of log-odds with its variance (a Kalman filter's step of logistic regression)."""

    variance: float
    least: float
    odds: float = 0.0

    def learn(self, predicted: float, stands: bool) -> None:
        information = predicted * (1.0 - predicted)
        variance = self.variance / (1.0 + self.variance * information)
        self.variance = variance if variance > self.least else self.least
        moved = self.odds + self.variance * (stands - predicted)
        self.odds = moved if -_MOST < moved < _MOST else max(-_MOST, min(_MOST, moved))


def _source_shift() -> _Shift:
    return _Shift(_SOURCE_PRIOR, _SOURCE_LEAST)


@dataclass(slots=True)
class Acceptance:
    """The corrections of one engine. ``bins``: how right the corrected survivals were."""

    bins: list[Bin] = field(default_factory=lambda: [Bin() for _ in range(BINS)])
    _sources: dict[tuple[str, bool], _Shift] = field(
        default_factory=lambda: defaultdict(_source_shift)
    )
    _sequences: dict[int, dict[str, _Shift]] = field(default_factory=dict)

    def confidence(self, sequence: int, proposal: Proposal, masked: bool) -> list[float]:
        """The corrected confidence of each token; a forced one stays certain.

        masked: whether a grammar holds where the draft begins.
        """
        against = {
            name: math.exp(-self._odds(sequence, name, masked))
            for name in set(proposal.sources)
            if name != FORCED
        }
        found: list[float] = []
        for source, raw in zip(proposal.sources, proposal.confidence, strict=True):
            if source != FORCED:
                inside = raw if _EDGE <= raw <= _SURE else max(_EDGE, min(_SURE, raw))
                raw = inside / (inside + (1.0 - inside) * against[source])
            found.append(raw)
        return found

    def saw(
        self,
        sequence: int,
        proposal: Proposal,
        masked: bool,
        came: Seq[int],
        *,
        tested: int,
        corrected: Seq[float] | None = None,
    ) -> None:
        """``came`` was committed after ``proposal`` was made, of which ``tested`` were verified.

        Untested tokens are judged by what came: right for one-hot drafts, whatever the temperature.
        corrected: the ``confidence`` that the draft was cut by; None: as of now.
        """
        if corrected is None:
            corrected = self.confidence(sequence, proposal, masked)
        if proposal.parents is None:
            stood = self._saw_chain(sequence, proposal, masked, came, corrected)
            alive = 1.0
            for i, source in enumerate(proposal.sources[:tested]):
                alive *= corrected[i]
                if source != FORCED:
                    self._count(alive, i < stood)
            return
        path = self._saw_tree(sequence, proposal, masked, came, corrected)
        survival: list[float] = []
        for i, above in enumerate(proposal.above[:tested]):
            survival.append(corrected[i] if above < 0 else survival[above] * corrected[i])
            if proposal.sources[i] != FORCED:
                self._count(survival[i], i in path)

    def _saw_chain(
        self,
        sequence: int,
        proposal: Proposal,
        masked: bool,
        came: Seq[int],
        corrected: Seq[float],
    ) -> int:
        """Learn from a chain; returns how many of its tokens stood."""
        drafted = zip(proposal.tokens, proposal.sources, corrected, strict=False)
        stood, shifts, known = 0, (), None
        for token, (guess, source, predicted) in zip(came, drafted, strict=False):
            stands = guess == token
            if source != FORCED:
                if source != known:
                    shifts, known = self._shifts(sequence, source, masked), source
                for shift in shifts:
                    shift.learn(predicted, stands)
            if not stands:
                break
            stood += 1
        return stood

    def _saw_tree(
        self,
        sequence: int,
        proposal: Proposal,
        masked: bool,
        came: Seq[int],
        corrected: Seq[float],
    ) -> set[int]:
        """Learn from a tree: every sibling that verification passed teaches. Returns what stood."""
        path, at = set[int](), -1
        for token in came:
            before, at = at, None
            for i in proposal.below(before):
                stands = proposal.tokens[i] == token
                if proposal.sources[i] != FORCED:
                    for shift in self._shifts(sequence, proposal.sources[i], masked):
                        shift.learn(corrected[i], stands)
                at = i if stands else at
            if at is None:
                break
            path.add(at)
        return path

    def close(self, sequence: int) -> None:
        self._sequences.pop(sequence, None)

    def _odds(self, sequence: int, source: str, masked: bool) -> float:
        own = self._sequences.get(sequence, {}).get(source)
        return self._sources[source, masked].odds + (own.odds if own else 0.0)

    def _shifts(self, sequence: int, source: str, masked: bool) -> tuple[_Shift, _Shift]:
        """Of the source, and of the sequence."""
        own = self._sequences.setdefault(sequence, {})
        if source not in own:
            own[source] = _Shift(_SEQUENCE_PRIOR, _SEQUENCE_LEAST)
        return self._sources[source, masked], own[source]

    def _count(self, survival: float, stands: bool) -> None:
        bin = self.bins[min(int(survival * BINS), BINS - 1)]
        bin.count += 1
        bin.predicted += survival
        bin.accepted += stands
