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
    total = sum(weights)
    squares = sum(w * w for w in weights)
    covered = [sum(p for b, p in row.wanted.items() if b in row.seen) for row in log]
    return Judged(
        ips=_interval(log, ips, seed, rounds),
        snips=_interval(log, snips, seed, rounds),
        dr=_interval(log, doubly_robust, seed, rounds),
        support=sum(covered) / len(log),
        effective=total * total / squares if squares else 0.0,
        requests=len(log),
        logged=sum(row.loss for row in log) / len(log),
    )


def weight(row: Logged) -> float:
    """How much likelier the other policy was to choose what was chosen; cut at ``MOST_WEIGHT``."""
    return min(row.wanted.get(row.chosen, 0.0) / max(row.chance, 1e-9), MOST_WEIGHT)


def ips(log: Sequence[Logged]) -> float:
    return sum(weight(row) * row.loss for row in log) / len(log)


def snips(log: Sequence[Logged]) -> float:
    total = sum(weight(row) for row in log)
    return sum(weight(row) * row.loss for row in log) / total if total else float("nan")


def doubly_robust(log: Sequence[Logged]) -> float:
    total = 0.0
    for row in log:
        total += sum(chance * row.predicted[b] for b, chance in row.wanted.items())
        total += weight(row) * (row.loss - row.predicted[row.chosen])
    return total / len(log)


def _interval(
    log: Sequence[Logged], estimate: Callable[[Sequence[Logged]], float], seed: int, rounds: int
) -> Value:
    sessions: dict[str, list[Logged]] = {}
    for row in log:
        sessions.setdefault(row.session, []).append(row)
    groups, rng = list(sessions.values()), random.Random(seed)
    found = []
    for _ in range(rounds):
        drawn = [row for group in rng.choices(groups, k=len(groups)) for row in group]
        found.append(estimate(drawn))
    found = sorted(value for value in found if value == value)
    if not found:
        return Value(float("nan"), float("nan"), float("nan"))
    low, high = found[int(0.025 * len(found))], found[int(0.975 * (len(found) - 1))]
    return Value(estimate(log), low, high)
