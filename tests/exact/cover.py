"""Rows of factor levels, such that every pair of levels of two factors stands in some row."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any

Row = dict[str, Any]


def pairs(row: Row) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    """All pairs of (factor, level) that a row shows."""
    return set(itertools.combinations(sorted(row.items()), 2))


class Cover:
    """Makes one set of rows after the other; each covers all pairs, together they spread out.

    watched: factors whose full product is to be met as evenly as possible over all sets.
    """

    def __init__(self, factors: Mapping[str, Seq[Any]], watched: Seq[str], seed: int = 0):
        self.factors = factors
        self._watched = tuple(watched)
        self._rng = random.Random(seed)
        self.met: Counter[tuple[Any, ...]] = Counter()

    def cell(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._watched)

    def rows(self, tries: int = 200) -> list[Row]:
        """A set of rows that shows every pair of levels of every two factors."""
        missing = {
            pair
            for a, b in itertools.combinations(sorted(self.factors), 2)
            for pair in itertools.product(
                ((a, x) for x in self.factors[a]), ((b, y) for y in self.factors[b])
            )
        }
        chosen = []
        while missing:
            best = min(
                (self._draw() for _ in range(tries)), key=lambda row: self._worth(row, missing)
            )
            if not pairs(best) & missing:
                continue
            missing -= pairs(best)
            self.met[self.cell(best)] += 1
            chosen.append(best)
        return chosen

    def _draw(self) -> Row:
        return {name: self._rng.choice(levels) for name, levels in self.factors.items()}

    def _worth(self, row: Row, missing: set) -> tuple[int, int]:
        """Ascending: many new pairs first, then cells that were met seldom."""
        return (-len(pairs(row) & missing), self.met[self.cell(row)])
