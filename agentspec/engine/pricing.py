"""What a step costs, predicted: the profiled curve, mended by the steps that a running engine sees.

Two parts. The forward pass: ``CostCurve``, each of whose points follows what is measured near it.
The rest of a step (python: planning, grammar walks, verification, commits), over sequences and
drafted tokens. What drafting costs is told in ``draft_cost.py``.

Measured times have outliers upwards (a shared machine), so every error counts at most a tenth of
the prediction, which makes the estimates follow the median. All is seconds of the engine's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from .cost import CostCurve, interpolate
from .draft_cost import solved

_CLIP = 0.1
_SCALE_RATE = 0.1
_WRONG_AFTER = 4
_HURRIED_RATE = 0.5
_POINT_RATE = 0.02
_LINE_MEMORY = 0.99
_TRUSTED, _SOLVED_EVERY = 16, 8
_LEAST_LEFT = 0.5
"""Of a plain step: what forced rows that are paid for leave of a step's cost, at least."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a pass computes. contexts: by the rows of a span, the tokens of context of all spans
    with so many. spans: how many there are."""

    rows: int
    contexts: dict[int, int]
    spans: int = 0

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Load:
        """spans: (rows, tokens of context before them)."""
        rows, number, contexts = 0, 0, defaultdict[int, int](int)
        for count, context in spans:
            rows += count
            number += 1
            contexts[count] += context
        return cls(rows, contexts, number)


class LiveCurve:
    """A ``CostCurve`` that learns. Same questions, and ``saw``.

    What makes all passes slower alike (a busy machine) moves one common factor, fast; the points
    near the pass move slowly. So the shape outlives an hour in which only plain steps were seen.
    Passes that one after the other are off by more than an outlier may count move the factor
    faster: then it is the factor that is wrong.
    """

    def __init__(self, curve: CostCurve):
        self._base_rows, self._base = curve.rows, list(curve.seconds_at)
        self._attend_rows, self._attend = curve.attend_rows, list(curve.attend_at)
        self._span = [curve.span_s]
        self._scale = 1.0
        self._run = 0

    @property
    def curve(self) -> CostCurve:
        """A snapshot."""
        base = tuple(seconds * self._scale for seconds in self._base)
        attend = tuple(seconds * self._scale for seconds in self._attend)
        span_s = self._span[0] * self._scale
        return CostCurve(self._base_rows, base, self._attend_rows, attend, span_s)

    def seconds(self, rows: float) -> float:
        return self._scale * interpolate(self._base_rows, self._base, rows)

    def steps(self, first: int, count: int) -> list[float]:
        """``seconds`` of first, first + 1, ... rows, so many."""
        known, values, found = self._base_rows, self._base, list[float]()
        for right in range(1, len(known)):
            if len(found) == count or first < known[0]:
                break
            left, end = known[right - 1], known[right]
            slope = (values[right] - values[right - 1]) / (end - left)
            rows = range(max(first + len(found), left), min(end + 1, first + count))
            found += [self._scale * (values[right - 1] + slope * (n - left)) for n in rows]
        return found + [self.seconds(n) for n in range(first + len(found), first + count)]

    def attend(self, rows: int) -> float:
        return self._scale * interpolate(self._attend_rows, self._attend, rows)

    def rows_within(self, seconds: float) -> int:
        """The most rows of a pass without context that takes no longer; 0: not even one."""
        low, high = 0, 1 << 16
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.seconds(middle) <= seconds else (low, middle - 1)
        return low

    def spans_seconds(self, load: Load) -> float:
        """What the spans add to a pass over their rows: each of them, and its context."""
        attended = sum(self.attend(rows) * tokens for rows, tokens in load.contexts.items())
        return self._scale * self._span[0] * load.spans + attended

    def pass_seconds(self, load: Load) -> float:
        return self.seconds(load.rows) + self.spans_seconds(load)

    def saw(self, load: Load, seconds: float) -> None:
        """A pass took ``seconds``. Passes beyond the last point (long prompts) teach nothing."""
        rows = load.rows
        if rows == 0 or rows > self._base_rows[-1]:
            return
        predicted = self.pass_seconds(load)
        error = _clipped(seconds / predicted - 1.0)
        shares = [
            (self._base, at, weight * self._base[at] * self._scale / predicted)
            for at, weight in _weights(self._base_rows, rows)
        ]
        share = load.spans * self._span[0] * self._scale / predicted
        shares.append((self._span, 0, share))
        for span_rows, context in load.contexts.items():
            shares += [
                (self._attend, at, weight * context * self._attend[at] * self._scale / predicted)
                for at, weight in _weights(self._attend_rows, span_rows)
            ]
        self._scale *= 1.0 + self._scale_rate(error) * error
        for values, at, share in shares:
            values[at] *= 1.0 + _POINT_RATE * error * share
            _keep_rising(values, at)

    def _scale_rate(self, error: float) -> float:
        """Of this error; counts the clipped ones of one sign in a row."""
        if abs(error) < _CLIP or self._run * error < 0.0:
            self._run = 0
        if abs(error) >= _CLIP:
            self._run += 1 if error > 0.0 else -1
        return _SCALE_RATE if abs(self._run) < _WRONG_AFTER else _HURRIED_RATE


class Line:
    """A linear estimate of cost over counts, none of whose factors is ever negative: least squares
    with forgetting, solved anew every few steps. What isn't seen any more keeps its price."""

    def __init__(self, *start: float):
        self._factors = list(start)
        self._products = [[0.0] * len(start) for _ in start]
        self._sums = [0.0] * len(start)
        self._seen = 0

    def seconds(self, *counts: float) -> float:
        return sum(f * count for f, count in zip(self._factors, counts, strict=True))

    def saw(self, seconds: float, *counts: float) -> None:
        """It took ``seconds`` with these counts; an outlier counts as twice what was expected."""
        if self._seen >= _TRUSTED:
            seconds = min(seconds, 2.0 * self.seconds(*counts))
        for i, (row, count) in enumerate(zip(self._products, counts, strict=True)):
            self._products[i] = [
                _LINE_MEMORY * p + count * o for p, o in zip(row, counts, strict=True)
            ]
            self._sums[i] = _LINE_MEMORY * self._sums[i] + count * seconds
        self._seen += 1
        if self._seen <= _TRUSTED or self._seen % _SOLVED_EVERY == 0:
            self._factors = solved(self._products, self._sums)


class StepCosts:
    """All that a step is expected to cost.

    curve: of the forward pass. rest: starts from nothing; seconds a step, a sequence, a drafted
    token of free text, one within a grammar, whose walks and masks come on top, and one that the
    grammar forces, which is taken without a test.
    """

    def __init__(self, curve: LiveCurve):
        self.curve = curve
        self.rest = Line(0.0, 0.0, 0.0, 0.0, 0.0)

    def token_seconds(self, masked: float) -> float:
        """What one more drafted token costs beside its row; masked: the share of such tokens that
        stand within a grammar, forced ones apart."""
        return self.rest.seconds(0, 0, 1.0 - masked, masked, 0)

    @property
    def forced_seconds(self) -> float:
        """The same of a forced one."""
        return self.rest.seconds(0, 0, 0, 0, 1)


def refund(curve: LiveCurve, sequences: int, forced: int, plain_s: float) -> tuple[float, float]:
    """Seconds that each of so many forced rows saves in a later pass where it stands, contexts
    aside; and the most that it may save beyond its own cost. plain_s: of a step without drafts."""
    saved_s = (curve.seconds(sequences + forced) - curve.seconds(sequences)) / forced
    return saved_s, (1.0 - _LEAST_LEFT) * plain_s / forced


def _clipped(error: float) -> float:
    return max(-_CLIP, min(_CLIP, error))


def _weights(known: Seq[int], at: int) -> list[tuple[int, float]]:
    """The points that the value at ``at`` comes from, and their parts in it."""
    for right, rows in enumerate(known):
        if at <= rows:
            if right == 0 or at == rows:
                return [(right, 1.0)]
            part = (at - known[right - 1]) / (rows - known[right - 1])
            return [(right - 1, 1.0 - part), (right, part)]
    return [(len(known) - 1, 1.0)]


def _keep_rising(values: list[float], at: int) -> None:
    """After a change of ``values[at]``: its neighbours give way, so that none falls."""
    for i in range(at, 0, -1):
        values[i - 1] = min(values[i - 1], values[i])
    for i in range(at, len(values) - 1):
        values[i + 1] = max(values[i + 1], values[i])
