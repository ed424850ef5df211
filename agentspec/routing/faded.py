"""Means that forget, in a tree from the general to the special.

A measurement counts half after ``half_life`` later ones of its node. The special node's mean is
drawn towards the general one's by ``PULL`` measurements' worth, so that a class seen twice is
believed a little and one seen often is believed; the most general one hardly to the prior. What
hasn't been measured for a while is believed as before, with more doubt: its weight there halves
with every ``STALE`` measurements elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PULL = 5.0
ROOT_PULL = 0.5
STALE = 400.0
MOST_NODES = 20_000


@dataclass(slots=True)
class Faded:
    """The mean of measurements and the sum of squared deviations, both fading. at: the tick of the
    last one."""

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    at: int = 0

    def add(self, value: float, keep: float, tick: int) -> None:
        """keep: the weight that what is known keeps, in (0, 1)."""
        self.count = self.count * keep + 1.0
        away = value - self.mean
        self.mean += away / self.count
        self.squares = self.squares * keep + away * (value - self.mean)
        self.at = tick

    @property
    def variance(self) -> float:
        return self.squares / self.count if self.count > 0 else 0.0

    def weight(self, tick: int) -> float:
        """How many fresh measurements it is worth now."""
        return self.count * 0.5 ** ((tick - self.at) / STALE)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, the variance of single measurements, and how many it rests on."""

    mean: float
    variance: float
    count: float

    @property
    def doubt(self) -> float:
        """The variance of the mean itself."""
        return self.variance / (self.count + 1.0)


class Tree:
    """Faded means by key; a measurement goes into every node of its chain.

    prior, spread: the mean and variance believed before anything was measured.
    """

    def __init__(self, prior: float, spread: float, half_life: float):
        self._prior = prior
        self._spread = spread
        self._keep = 0.5 ** (1.0 / half_life)
        self._nodes: dict[tuple[str, ...], Faded] = {}

    def add(self, chain: Sequence[tuple[str, ...]], value: float, tick: int) -> None:
        for key in chain:
            node = self._nodes.get(key)
            if node is None:
                node = self._nodes[key] = Faded()
                if len(self._nodes) > MOST_NODES:  # the oldest class goes
                    del self._nodes[next(iter(self._nodes))]
            node.add(value, self._keep, tick)

    def at(self, chain: Sequence[tuple[str, ...]], tick: int) -> Estimate:
        """The best guess for the last key of the chain."""
        mean, variance, fresh, pull = self._prior, self._spread, 0.0, ROOT_PULL
        for key in chain:
            node = self._nodes.get(key)
            if node is None:
                continue
            total = node.count + pull
            variance = (node.count * node.variance + PULL * variance) / (node.count + PULL)
            mean = (node.count * node.mean + pull * mean) / total
            pull = PULL
            fresh = max(fresh, node.weight(tick))
        return Estimate(mean, variance, fresh)

    def beside(self, chain: Sequence[tuple[str, ...]], tick: int) -> Estimate:
        """What the special adds to the general: what all have in common is left to others, who
        learn it at the same time."""
        found = self.at(chain, tick)
        mean = found.mean - self.at(chain[:1], tick).mean
        return Estimate(mean, found.variance, found.count)


class Ratio:
    """A fading ratio of sums: what a token costs, say. ``None`` before anything was measured."""

    def __init__(self, half_life: float):
        self._keep = 0.5 ** (1.0 / half_life)
        self._sums: dict[tuple[str, ...], tuple[float, float]] = {}

    def add(self, key: tuple[str, ...], upper: float, lower: float) -> None:
        if lower <= 0:
            return
        before = self._sums.get(key, (0.0, 0.0))
        self._sums[key] = before[0] * self._keep + upper, before[1] * self._keep + lower

    def at(self, *chain: tuple[str, ...]) -> float | None:
        """That of the last key of the chain that was measured."""
        for key in reversed(chain):
            if key in self._sums:
                upper, lower = self._sums[key]
                return upper / lower
        return None
