"""A line through measurements that forget: seconds as a sum of a base and what each unit adds.

Ridge regression in closed form, for at most three terms. A measurement counts half after
``half_life`` later ones, and all that is known half after ``STALE`` measurements made elsewhere:
of a place that wasn't asked for long the same is believed, but new measurements soon win. Errors
are taken as relative ones: their squares are weighed by one over the square of what was predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from .faded import STALE

_LEAST = 1e-9


class Line:
    """prior: the terms believed before anything was measured; trust: in how many measurements'
    worth of each, at a typical size of its term."""

    def __init__(
        self,
        prior: Sequence[float],
        typical: Sequence[float],
        trust: Sequence[float],
        half_life: float,
    ):
        self._size = len(prior)
        self._keep = 0.5 ** (1.0 / half_life)
        scale = max(sum(p * t for p, t in zip(prior, typical, strict=True)), _LEAST)
        self._ridge = [n * (t / scale) ** 2 for n, t in zip(trust, typical, strict=True)]
        self._a = [[0.0] * self._size for _ in prior]
        self._b = [0.0] * self._size
        self._prior = list(prior)
        self._coef = list(prior)
        self._inverse = [
            [1.0 / self._ridge[i] if i == j else 0.0 for j in range(self._size)]
            for i in range(self._size)
        ]
        self._tick = 0
        self.count = 0.0

    def add(self, terms: Sequence[float], value: float, tick: int) -> None:
        """One measurement."""
        keep = self._keep * 0.5 ** ((tick - self._tick) / STALE)
        self._tick = tick
        if self.count > 1.0:  # what is forgotten leaves its conclusion behind
            self._prior = list(self._coef)
        weight = 1.0 / max(self.at(terms), value * 0.3, _LEAST) ** 2
        for i in range(self._size):
            self._b[i] = self._b[i] * keep + weight * terms[i] * value
            row = self._a[i]
            for j in range(self._size):
                row[j] = row[j] * keep + weight * terms[i] * terms[j]
        self.count = self.count * keep + 1.0
        self._solve()

    def at(self, terms: Sequence[float]) -> float:
        """What is to be expected."""
        total = sum(map(mul, self._coef, terms))
        return total if total > _LEAST else _LEAST

    def doubt(self, terms: Sequence[float], value: float, tick: int) -> float:
        """The relative variance of what is expected, in units of that of one measurement."""
        total = sum(map(mul, terms, [sum(map(mul, row, terms)) for row in self._inverse]))
        return total / (value * value) * 2.0 ** ((tick - self._tick) / STALE)

    def weight(self, tick: int) -> float:
        """How many fresh measurements it is worth now."""
        return self.count * 0.5 ** ((tick - self._tick) / STALE)

    def _solve(self) -> None:
        """No term may be negative: one that would be is nothing, and the others are found anew."""
        held: set[int] = set()
        while True:
            matrix = [row[:] for row in self._a]
            target = self._b[:]
            for i in range(self._size):
                matrix[i][i] += self._ridge[i] * (1e9 if i in held else 1.0)
                target[i] += 0.0 if i in held else self._ridge[i] * self._prior[i]
            self._inverse = _inverse(matrix)
            self._coef = [
                sum(row[j] * target[j] for j in range(self._size)) for row in self._inverse
            ]
            below = {i for i, c in enumerate(self._coef) if c < 0 and i not in held}
            if not below:
                self._coef = [max(c, 0.0) for c in self._coef]
                return
            held |= below


def _inverse(matrix: list[list[float]]) -> list[list[float]]:
    """By elimination; the ridge keeps it regular."""
    size = len(matrix)
    rows = [row[:] + [1.0 if i == j else 0.0 for j in range(size)] for i, row in enumerate(matrix)]
    for i in range(size):
        best = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for r in range(size):
            if r != i and rows[r][i]:
                factor = rows[r][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [row[size:] for row in rows]


def within(limit: float, expected: float, variance: float) -> float:
    """The chance that a quantity whose logarithm is spread by ``variance`` around that of
    ``expected`` stays within a limit."""
    away = (math.log(limit) - math.log(max(expected, _LEAST))) / math.sqrt(max(variance, 1e-6))
    return 0.5 * math.erfc(-away / math.sqrt(2.0))
