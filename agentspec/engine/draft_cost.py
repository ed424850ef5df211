"""What a call of a draft source costs, learnt: over the sequences that are asked and the width.

seconds = a + b n + c w + d n w + e u, for n sequences, at most w tokens each, and u tokens of
prompts that the source has not read yet: a block in one pass is mostly a, a lookup mostly b, a
model that drafts token by token mostly c, and one that reads prompts for itself pays e for them.
Least squares with forgetting; what the calls seen can't tell apart is taken to share alike what
they cost together.
"""

from __future__ import annotations

_MEMORY = 0.98
_RIDGE = 1e-4
_OUTLIER = 3.0
"""A call that takes so many times what was expected counts as if it had taken that."""
_TRUSTED = 8
"""Calls before what is expected can tell an outlier."""
_YOUNG, _SOLVED_EVERY = 64, 8
"""From so many calls on the parts are worked out anew at every so-manieth."""
_PARTS = 5
_READ_AT_ONCE = 512
"""A source that reads texts for itself reads the rest in later calls."""
_READ_ANYWAY = 16
"""Tokens that came since the last call, more or less: no part of ``unread``."""
_TEXTS_MEMORY = 0.999


class DraftCost:
    """Of one source. No part of it is ever negative."""

    def __init__(self) -> None:
        self._products = [[0.0] * _PARTS for _ in range(_PARTS)]
        self._sums = [0.0] * _PARTS
        self._parts: list[float] | None = [0.0] * _PARTS
        self.calls = 0

    def seconds(self, sequences: float, width: float, unread: float = 0.0) -> float:
        """Expected; 0 before the first call."""
        if self._parts is None:
            self._parts = solved(self._products, self._sums)
        a, b, c, d, e = self._parts
        return a + b * sequences + (c + d * sequences) * width + e * unread

    def saw(self, seconds: float, sequences: int, width: int, unread: int = 0) -> None:
        """A call for so many sequences, the widest of so many tokens, took ``seconds``."""
        if self.calls >= _TRUSTED:
            seconds = min(seconds, _OUTLIER * self.seconds(sequences, width, unread))
        counts = (1.0, sequences, width, sequences * width, unread)
        for row, count in zip(self._products, counts, strict=True):
            for i, other in enumerate(counts):
                row[i] = _MEMORY * row[i] + count * other
        for i, count in enumerate(counts):
            self._sums[i] = _MEMORY * self._sums[i] + count * seconds
        if self.calls < _YOUNG or self.calls % _SOLVED_EVERY == 0:
            self._parts = None
        self.calls += 1


class Texts:
    """How long prompts are, a step of a sequence: what a source that reads them for itself has to
    read in the mean of all its calls, however seldom it is asked now."""

    def __init__(self) -> None:
        self._tokens = self._steps = 0.0

    def step(self, prompt: int) -> None:
        """A sequence took part in a step; prompt: its length in the first one, then 0."""
        self._tokens = _TEXTS_MEMORY * self._tokens + max(prompt - _READ_ANYWAY, 0)
        self._steps = _TEXTS_MEMORY * self._steps + 1.0

    @property
    def unread(self) -> float:
        return self._tokens / self._steps if self._steps else 0.0


def read(known: int, length: int) -> tuple[int, int]:
    """What a call has to read of a text of which it knew so much, and how much it knows then."""
    knows = min(length, known + _READ_AT_ONCE)
    return max(knows - known - _READ_ANYWAY, 0), knows


def solved(products: list[list[float]], sums: list[float]) -> list[float]:
    """Least squares of their normal equations, no part negative."""
    used = [i for i in range(len(sums)) if products[i][i] > 0.0]
    parts = [0.0] * len(sums)
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
