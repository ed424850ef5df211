"""A rival: the adaptive router that litellm 1.110.2 ships, its idea written anew for the replay.

After its documentation and source (router_strategy/adaptive_router): a Beta posterior for each kind
of request and model, begun with ten pseudo-observations; for every call one sample a model, scored
0.7 times the sample plus 0.3 times how cheap the model's list price is among the others'; no
sessions, no latency; updates that would bring the observations above 200 are dropped. What it
learns from are words of users, which the traffic doesn't hold: here an answer counts as a success
and an error as a failure, which it could not know better.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

_QUALITY, _COST = 0.7, 0.3
_AT_FIRST = 10.0
_PRIOR_MEAN = 0.5
_MOST = 200.0


class LitellmThompson:
    """prices: of each model, by any unit they share."""

    name = "thompson:litellm"

    def __init__(self, prices: Mapping[str, float], seed: int):
        self._prices = prices
        self._rng = random.Random(seed)
        self._cells: dict[tuple[str, str], tuple[float, float]] = {}

    def choose(self, kind: str, models: Sequence[str]) -> str:
        low, high = min(self._prices.values()), max(self._prices.values())

        def score(model: str) -> float:
            sample = self._rng.betavariate(*self._cell(kind, model))
            cheap = 0.5 if high == low else 1.0 - (self._prices[model] - low) / (high - low)
            return _QUALITY * sample + _COST * cheap

        return max(models, key=score)

    def learn(self, kind: str, model: str, ok: bool) -> None:
        alpha, beta = self._cell(kind, model)
        if alpha + beta + 1.0 <= _MOST:
            self._cells[kind, model] = (alpha + ok, beta + (not ok))

    def _cell(self, kind: str, model: str) -> tuple[float, float]:
        start = (_PRIOR_MEAN * _AT_FIRST, (1 - _PRIOR_MEAN) * _AT_FIRST)
        return self._cells.get((kind, model), start)
