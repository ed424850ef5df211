"""Confidence of model-free drafts: acceptance rates by kind of evidence, learnt while serving."""

from __future__ import annotations

from typing import NamedTuple

_PRIOR_WEIGHT = 8.0
_MEMORY = 512.0
"""Outcomes that a bucket remembers: beyond it old ones fade, so that a change of traffic shows."""
_BY_LENGTH = (0.1, 0.25, 0.4, 0.6, 0.75, 0.85, 0.92)
_BY_AGREEMENT = (0.4, 0.7, 0.9, 1.0)
"""Prior acceptance rates by bucket: guesses, of which little is left after a few dozen outcomes."""


class Evidence(NamedTuple):
    """What speaks for one drafted token.

    matched: how many tokens of the text before it (drafted ones included) match the place it was
    copied from. seen: how often the token followed there. places: how often anything followed.
    """

    matched: int
    seen: int
    places: int

    @property
    def bucket(self) -> tuple[int, int]:
        """(length, agreement), indices of the tables above."""
        length = min(self.matched.bit_length(), len(_BY_LENGTH) - 1)
        if self.seen < self.places:
            return length, int(2 * self.seen >= self.places)
        return length, 2 if self.seen == 1 else 3


class Calibration:
    """A Beta estimate of the acceptance rate for each bucket of evidence."""

    def __init__(self) -> None:
        self._accepted: dict[tuple[int, int], float] = {}
        self._tried: dict[tuple[int, int], float] = {}

    def confidence(self, evidence: Evidence) -> float:
        """P(accepted), the mean of the bucket's estimate; strictly between 0 and 1."""
        bucket = evidence.bucket
        prior = _BY_LENGTH[bucket[0]] * _BY_AGREEMENT[bucket[1]]
        accepted = self._accepted.get(bucket, 0.0) + prior * _PRIOR_WEIGHT
        return accepted / (self._tried.get(bucket, 0.0) + _PRIOR_WEIGHT)

    def record(self, evidence: Evidence, accepted: bool) -> None:
        """One verified outcome."""
        bucket = evidence.bucket
        tried = self._tried.get(bucket, 0.0)
        fade = min(1.0, _MEMORY / (tried + 1.0))
        self._tried[bucket] = (tried + 1.0) * fade
        self._accepted[bucket] = (self._accepted.get(bucket, 0.0) + accepted) * fade
