"""Policies: options with predictions in, an order and a probability of each out.

They see no request text, make no call and keep no clock. An option is worth a number, the lower the
better; ``now`` is this request, ``later`` those of the session that follow, with its text in the
option's cache by then. A move so pays its cold cache once and gains over what is to come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .estimate import Predicted

FEW = 3
FRESH = 0.5
"""A backend that was tried less often, or whose measurements are worth less by now, is unknown."""
STAYS = 0.1
"""A session leaves the backend that has its text for what is better by more than this share."""
_UNPRICED_VENDOR_NUSD = 1e12


@dataclass(frozen=True, slots=True)
class Option:
    """A backend that may be chosen. now, later: what to expect of this request, and of one that
    follows it there. home: the session's text is there. sold: a vendor's, so unknown is not free.
    """

    backend: str
    now: Predicted
    later: Predicted
    home: bool = False
    sold: bool = False

    def cost_nusd(self, predicted: Predicted) -> float:
        """A self-hosted backend whose price isn't known counts as free, a vendor's as too dear."""
        if predicted.cost_nusd is None:
            return _UNPRICED_VENDOR_NUSD if self.sold else 0.0
        return predicted.cost_nusd


@dataclass(frozen=True, slots=True)
class Ranking:
    """Indexes into the options, best first; the probability with which each was to be chosen, and
    what each is worth. reason: why the first comes first. explored: it isn't the best."""

    order: tuple[int, ...]
    chances: tuple[float, ...]
    scores: tuple[float, ...]
    reason: str
    explored: bool = False


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        """turns: how many requests of the session are to be expected, this one included."""
        ...


Worth = Callable[[Option, Predicted], float]


def over_turns(option: Option, turns: float, worth: Worth) -> float:
    """The worth of an average request from here on; a session's home is a little better."""
    value = (worth(option, option.now) + (turns - 1.0) * worth(option, option.later)) / turns
    return value * (1.0 - STAYS) if option.home else value


def certain(scores: Sequence[float], reason: str) -> Ranking:
    """The ranking of a policy that leaves nothing to chance."""
    order = tuple(sorted(range(len(scores)), key=lambda i: scores[i]))
    chances = tuple(1.0 if i == order[0] else 0.0 for i in range(len(scores)))
    return Ranking(order, chances, tuple(scores), reason)


def to_try(options: Sequence[Option]) -> Ranking | None:
    """For policies that leave nothing to chance: at the start of a session, that option first of
    which least is known, as long as that is too little to compare it."""
    if any(option.home for option in options):
        return None
    if not any(unknown(option.now) for option in options):
        return None
    scores = [o.now.measured if unknown(o.now) else math.inf for o in options]
    return certain(scores, "little is known of it yet")


def unknown(predicted: Predicted) -> bool:
    return predicted.tried < FEW or predicted.measured < FRESH


class Fixed:
    """The configured order."""

    name = "fixed"

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        return certain([float(i) for i in range(len(options))], "first in the configured order")


class Cheapest:
    """The least money."""

    name = "cheapest"

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        if (trial := to_try(options)) is not None:
            return trial
        scores = [over_turns(o, turns, lambda o, p: o.cost_nusd(p) / 1e9) for o in options]
        return certain(scores, "the least money")


class Fastest:
    """The least time to the last token."""

    name = "fastest"

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        if (trial := to_try(options)) is not None:
            return trial
        scores = [over_turns(o, turns, lambda _, p: p.e2e_s) for o in options]
        return certain(scores, "the least time")


class Slo:
    """The least money among those likely enough to meet the target; else the likeliest."""

    name = "slo"

    def __init__(self, share: float):
        self._share = share

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        if (trial := to_try(options)) is not None:
            return trial
        met = [over_turns(o, turns, lambda _, p: p.met) for o in options]
        # A home's bonus must not count as a malus here.
        met = [m / (1.0 - STAYS) if o.home else m for m, o in zip(met, options, strict=True)]
        if max(met) < self._share:
            return certain(
                [1.0 - m for m in met], "none is likely to meet the target; the likeliest"
            )
        money = [over_turns(o, turns, lambda o, p: o.cost_nusd(p) / 1e9) for o in options]
        scores = [
            cost if m >= self._share else math.inf for cost, m in zip(money, met, strict=True)
        ]
        return certain(scores, "the least money among those that meet the target")
