"""What another policy would have lost on a log, from what the logged one did and how likely it was.

- IPS: losses of the requests where both chose the same, weighed by one over the propensity;
- SNIPS: the same, divided by the sum of the weights instead of the count (less spread, a little
  biased);
- DR, doubly robust (Dudik, Langford and Li, 2011): a model's prediction for each choice, put right
  by the weighed errors of the prediction where both chose the same. Right if either is.

Intervals are by bootstrap over sessions, since the requests of one are not independent. A log of a
policy that leaves nothing to chance says nothing of the choices that it never made: ``support`` is
the share of requests whose other choice could have been seen, ``effective`` how many requests the
weighed ones are worth.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_WEIGHT = 100.0


@dataclass(frozen=True, slots=True)
class Logged:
    """One request of a log. chance: with which ``chosen`` was chosen. loss: what came of it.

    wanted: the other policy's chance of each backend. predicted: a model's loss of each, made
    without this request's own loss. seen: backends that the log's policy might have chosen.
    """

    session: str
    chosen: str
    chance: float
    loss: float
    wanted: dict[str, float]
    predicted: dict[str, float]
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class Value:
    """A mean loss a request, and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judged:
    """support, effective: as above. logged: the mean loss of what was really done."""

    ips: Value
    snips: Value
    dr: Value
    support: float
    effective: float
    requests: int
    logged: float


def judge(log: Sequence[Logged], seed: int, rounds: int = 400) -> Judged:
    """Raises ``ValueError`` for an empty log."""
    if not log:
        raise ValueError("there is nothing to judge a policy by: the log is empty")
    weights = [weight(row) for row in log]
    total, squares = sum(weights), sum(w * w for w in weights)
    covered = [sum(p for b, p in row.wanted.items() if b in row.seen) for row in log]
    sums = _by_session(log)
    drawn = _drawn(sums, seed, rounds)
    whole = _add(sums)
    return Judged(
        ips=_interval(_Sums.ips, whole, drawn),
        snips=_interval(_Sums.snips, whole, drawn),
        dr=_interval(_Sums.dr, whole, drawn),
        support=sum(covered) / len(log),
        effective=total * total / squares if squares else 0.0,
        requests=len(log),
        logged=sum(row.loss for row in log) / len(log),
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """Over some requests: their number, weights, weighed losses, and doubly robust terms."""

    count: float
    weights: float
    losses: float
    robust: float

    def ips(self) -> float:
        return self.losses / self.count

    def snips(self) -> float:
        return self.losses / self.weights if self.weights else float("nan")

    def dr(self) -> float:
        return self.robust / self.count


def _by_session(log: Sequence[Logged]) -> list[_Sums]:
    sessions: dict[str, list[Logged]] = {}
    for row in log:
        sessions.setdefault(row.session, []).append(row)
    return [_add([_of(row) for row in rows]) for rows in sessions.values()]


def _of(row: Logged) -> _Sums:
    factor = weight(row)
    robust = sum(chance * row.predicted[b] for b, chance in row.wanted.items())
    robust += factor * (row.loss - row.predicted[row.chosen])
    return _Sums(1.0, factor, factor * row.loss, robust)


def _add(sums: Sequence[_Sums]) -> _Sums:
    return _Sums(
        sum(s.count for s in sums),
        sum(s.weights for s in sums),
        sum(s.losses for s in sums),
        sum(s.robust for s in sums),
    )


def _drawn(sums: Sequence[_Sums], seed: int, rounds: int) -> list[_Sums]:
    """As many sessions as there are, drawn with replacement, again and again."""
    rng = random.Random(seed)
    return [_add(rng.choices(sums, k=len(sums))) for _ in range(rounds)]


def _interval(estimate: Callable[[_Sums], float], whole: _Sums, drawn: Sequence[_Sums]) -> Value:
    found = sorted(value for value in map(estimate, drawn) if value == value)
    if not found:
        return Value(float("nan"), float("nan"), float("nan"))
    low, high = found[int(0.025 * len(found))], found[int(0.975 * (len(found) - 1))]
    return Value(estimate(whole), low, high)


def weight(row: Logged) -> float:
    """How much likelier the other policy was to choose what was chosen; cut at ``MOST_WEIGHT``."""
    return min(row.wanted.get(row.chosen, 0.0) / max(row.chance, 1e-9), MOST_WEIGHT)
