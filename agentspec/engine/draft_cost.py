"""What a call of a draft source costs, learnt: over the sequences that are asked and the width.

seconds = a + b n + c w + d n w, for n sequences and at most w tokens each: a block in one pass is
mostly a, a lookup mostly b, a model that drafts token by token mostly c. Least squares with
forgetting; what the calls seen can't tell apart is taken to share alike what they cost together.
"""

from __future__ import annotations

_MEMORY = 0.98
_RIDGE = 1e-4
_OUTLIER = 3.0
"""A call that takes so many times what was expected counts as if it had taken that."""
_TRUSTED = 8
"""Calls before what is expected can tell an outlier."""


class DraftCost:
    """Of one source. No part of it is ever negative."""

    def __init__(self) -> None:
        self._products = [[0.0] * 4 for _ in range(4)]
        self._sums = [0.0] * 4
        self._parts: list[float] | None = [0.0] * 4
        self.calls = 0

    def seconds(self, sequences: float, width: float) -> float:
        """Expected; 0 before the first call."""
        if self._parts is None:
            self._parts = _solved(self._products, self._sums)
        a, b, c, d = self._parts
        return a + b * sequences + (c + d * sequences) * width

    def saw(self, seconds: float, sequences: int, width: int) -> None:
        """A call for so many sequences, the widest of so many tokens, took ``seconds``."""
        if self.calls >= _TRUSTED:
            seconds = min(seconds, _OUTLIER * self.seconds(sequences, width))
        counts = (1.0, sequences, width, sequences * width)
        for row, count in zip(self._products, counts, strict=True):
            for i, other in enumerate(counts):
                row[i] = _MEMORY * row[i] + count * other
        for i, count in enumerate(counts):
            self._sums[i] = _MEMORY * self._sums[i] + count * seconds
        self._parts = None
        self.calls += 1


def _solved(products: list[list[float]], sums: list[float]) -> list[float]:
    """Least squares of their normal equations, no part negative."""
    used = [i for i in range(4) if products[i][i] > 0.0]
    parts = [0.0] * 4
    while used:
        scale = [products[i][i] ** 0.5 for i in used]
        rows = [
            [products[i][j] / (s * t) + _RIDGE * (i == j) for j, t in zip(used, scale, strict=True)]
            + [sums[i] / s]
            for i, s in zip(used, scale, strict=True)
        ]
        found = [x / s for x, s in zip(_eliminated(rows), scale, strict=True)]
        worst = min(range(len(used)), key=lambda k: found[k] * scale[k])
        if found[worst] >= 0.0:
            for i, part in zip(used, found, strict=True):
                parts[i] = part
            break
        del used[worst]
    return parts


def _eliminated(rows: list[list[float]]) -> list[float]:
    """The solution of a positive definite system; the last column is its right side."""
    size = len(rows)
    for k in range(size):
        for i in range(size):
            if i != k and rows[i][k]:
                share = rows[i][k] / rows[k][k]
                for j in range(k, size + 1):
                    rows[i][j] -= share * rows[k][j]
    return [rows[k][size] / rows[k][k] for k in range(size)]
