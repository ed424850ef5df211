"""Intervals by resampling prompts (Efron's percentile bootstrap), the same draws for everything.

Legend: C prompts, R resamples. Since all figures of one set of prompts see the same draws, a
quotient of two of them is resampled in pairs.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from agentspec.bench.stats import percentile

RESAMPLES = 2000
RESOLVED = 0.05
"""A figure is resolved where half its interval is at most this share of it."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """value with its 95 % interval; low and high are None where one prompt is all there is."""

    value: float
    low: float | None
    high: float | None

    def ci95(self) -> list[float | None]:
        return [_rounded(self.low), _rounded(self.high)]

    @property
    def half(self) -> float | None:
        """Half the interval's width, as a share of the value."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def prompts_needed(self, prompts: int) -> int | None:
        """About how many would resolve it: an interval shrinks by the root of their number."""
        return None if self.half is None else max(2, ceil(prompts * (self.half / RESOLVED) ** 2))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


class Draws:
    """Resamples of ``count`` prompts: how often each is drawn, [R, C]."""

    def __init__(self, count: int, seed: int = 0):
        generator = np.random.default_rng(seed)
        self.weights: Floats = generator.multinomial(
            count, [1 / count] * count, size=RESAMPLES
        ).astype(np.float64)

    def ratio(self, tops: Seq[float], bottoms: Seq[float]) -> Estimate | None:
        """sum(tops) / sum(bottoms), one of each a prompt; None where the sum below is 0."""
        return self.quotient((tops, bottoms), None)

    def quotient(
        self,
        one: tuple[Seq[float], Seq[float]],
        other: tuple[Seq[float], Seq[float]] | None,
    ) -> Estimate | None:
        """The ratio ``one`` over the ratio ``other`` (1 for None); of the same prompts."""
        value = _over(*(np.asarray(part, dtype=np.float64).sum() for part in one))
        drawn = self._drawn(one)
        if other is not None:
            base = _over(*(np.asarray(part, dtype=np.float64).sum() for part in other))
            value = _over(value, base)
            with np.errstate(divide="ignore", invalid="ignore"):
                drawn = drawn / self._drawn(other)
        if not np.isfinite(value):
            return None
        known = drawn[np.isfinite(drawn)].tolist()
        if len(one[0]) < 2 or len(known) < RESAMPLES / 2:
            return Estimate(float(value), None, None)
        return Estimate(float(value), percentile(known, 2.5), percentile(known, 97.5))

    def _drawn(self, parts: tuple[Seq[float], Seq[float]]) -> Floats:
        """[R] ratios."""
        top, bottom = (self.weights @ np.asarray(part, dtype=np.float64) for part in parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            return top / bottom


def _over(top: float, bottom: float) -> float:
    return float(top) / float(bottom) if bottom else float("nan")
