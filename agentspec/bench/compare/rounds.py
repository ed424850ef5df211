"""What every round of verification showed, told by a drafter that only listens.

The engine tells each drafter of a sequence what was verified and what was committed; this one never
proposes anything. Tokens that the grammar forces are left out throughout.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from agentspec.engine.draft.base import EMPTY, FORCED, DraftView, Proposal

WATCH = "watch"
THRESHOLDS = tuple(i / 10 for i in range(10))
_BINS = 20


@dataclass(frozen=True, slots=True)
class Round:
    """One verification that had drafts.

    width: drafted tokens verified. depth: of the longest path of them; of a chain the same.
    accepted: how many stand. confidence: of a chain's tokens, in order; () of a tree.
    """

    width: int
    depth: int
    accepted: int
    confidence: tuple[float, ...] = ()

    @classmethod
    def of(cls, proposal: Proposal, committed: Seq[int], accepted: int) -> Round:
        drafted = [source != FORCED for source in proposal.sources]
        depths: list[int] = []
        for above, own in zip(proposal.above, drafted, strict=True):
            depths.append((depths[above] if above >= 0 else 0) + own)
        standing = proposal.follow(committed)[:accepted]
        chain = proposal.parents is None
        return cls(
            width=sum(drafted),
            depth=max(depths, default=0),
            accepted=sum(drafted[i] for i in standing),
            confidence=tuple(itertools.compress(proposal.confidence, drafted)) if chain else (),
        )


class Watch:
    """A drafter by contract. ``rounds``: since they were last taken."""

    name = WATCH
    taps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.rounds: list[Round] = []

    def open(self, view: DraftView) -> None:
        """Nothing is kept of a sequence."""

    def close(self, view: DraftView) -> None:
        """Nothing is kept of a sequence."""

    def propose(self, views: Seq[DraftView], limits: Seq[int]) -> list[Proposal]:
        return [EMPTY] * len(views)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        tokens = view.tokens[len(view.tokens) - committed :]
        found = Round.of(proposal, tokens, accepted)
        if found.width:
            self.rounds.append(found)

    def take(self) -> list[Round]:
        rounds, self.rounds = self.rounds, []
        return rounds


def by_position(rounds: Seq[Round]) -> list[dict[str, Any]]:
    """For each place k from 1: how many rounds drafted so far, how many of them stood to k
    (``survival``), and how many of those that stood to k - 1 (``given_before``)."""
    found = []
    for place in range(1, max((r.depth for r in rounds), default=0) + 1):
        there = [r.accepted for r in rounds if r.depth >= place]
        before = sum(a >= place - 1 for a in there)
        stood = sum(a >= place for a in there)
        found.append(
            {
                "position": place,
                "rounds": len(there),
                "survival": stood / len(there),
                "given_before": stood / before if before else None,
            }
        )
    return found


def widths(rounds: Seq[Round], steps: int) -> dict[int, int]:
    """How many verifications had so many drafted tokens; ``steps``: of all, those of none too."""
    counts = Counter(r.width for r in rounds)
    counts[0] = max(steps - len(rounds), 0)
    return dict(sorted(counts.items()))


def sweep(rounds: Seq[Round]) -> list[dict[str, float | None]]:
    """What would have been verified had chains ended before their first token whose confidence is
    below a threshold: ``share`` of verified drafts that stand, and the accepted length."""
    chains = [r for r in rounds if r.confidence]
    found = []
    for threshold in THRESHOLDS if chains else ():
        kept = [_kept(r.confidence, threshold) for r in chains]
        stood = sum(min(r.accepted, k) for r, k in zip(chains, kept, strict=True))
        found.append(
            {
                "threshold": threshold,
                "share": stood / sum(kept) if sum(kept) else None,
                "width": sum(kept) / len(chains),
                "accepted_length": 1 + stood / len(chains),
            }
        )
    return found


def _kept(confidence: Seq[float], threshold: float) -> int:
    return next((i for i, c in enumerate(confidence) if c < threshold), len(confidence))


def calibration(rounds: Seq[Round], places: Seq[int] = (1, 3, 5, 7)) -> dict[int, float]:
    """Expected calibration error of the survival at each place, in 20 bins of equal width.

    Of chains only; without a meaning where the schedule chose what to verify by these confidences.
    """
    found = {}
    for place in places:
        there = [r for r in rounds if len(r.confidence) >= place]
        if not there:
            continue
        gaps: dict[int, float] = {}
        for r in there:
            predicted = 1.0
            for value in r.confidence[:place]:
                predicted *= value
            number = min(int(predicted * _BINS), _BINS - 1)
            gaps[number] = gaps.get(number, 0.0) + predicted - (r.accepted >= place)
        found[place] = sum(abs(gap) for gap in gaps.values()) / len(there)
    return found
