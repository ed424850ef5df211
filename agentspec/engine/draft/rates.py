"""Confidence of a draft without a confidence head: how often each of its places was accepted."""

from __future__ import annotations

_PRIOR, _PRIOR_WEIGHT = 0.6, 8.0
_MEMORY = 512.0
"""Outcomes that a place remembers: beyond it old ones fade."""


class PlaceRates:
    """A Beta estimate of P(accepted | those before accepted) by place in the proposal, masked or
    not. It looks at no token, so that cutting by it biases nothing."""

    def __init__(self) -> None:
        self._accepted: dict[tuple[int, bool], float] = {}
        self._tried: dict[tuple[int, bool], float] = {}

    def confidence(self, place: int, masked: bool) -> float:
        key = place, masked
        accepted = self._accepted.get(key, 0.0) + _PRIOR * _PRIOR_WEIGHT
        return accepted / (self._tried.get(key, 0.0) + _PRIOR_WEIGHT)

    def record(self, place: int, masked: bool, accepted: bool) -> None:
        """One verified outcome."""
        key = place, masked
        tried = self._tried.get(key, 0.0)
        fade = min(1.0, _MEMORY / (tried + 1.0))
        self._tried[key] = (tried + 1.0) * fade
        self._accepted[key] = (self._accepted.get(key, 0.0) + accepted) * fade
