"""Drafted tokens in the order of their admission, for a price of a second (``budget.choose``).

A token's rank is what is left of its gain after its own cost. Ranks never fall along a bid and ties
go to the smaller place, then to the first bid: so a prefix always comes before its rest. Few tokens
are ranked by lists, many by arrays; both give the same order and the same sums, to the bit.

Legend: B bids, W places of the longest one, N tokens that are worth more than their own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from operator import ge
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

MANY = 32
"""Tokens from which on arrays take less time."""


class Offered(NamedTuple):
    """Of one bid, what a search may look at freely, place by place; gains are weighted."""

    gains: Sequence[float]
    costs: Sequence[float]


Widths = Callable[[], list[int]]
"""Of a prefix: how many tokens of each bid are in it."""


class Ranking(Protocol):
    def best(self, price: float, start: float, other_s: float, /) -> tuple[float, Widths | None]:
        """The first so many tokens by rank, those with the most tokens a second, and that speed;
        None where none are faster than ``price``, which is then the speed.

        start: tokens that come without any. other_s: seconds of the step beside its pass.
        """
        ...


def ranking(offers: Sequence[Offered], pass_s: Sequence[float]) -> Ranking:
    """pass_s: seconds of the pass by drafted rows in it, from 0 on, for all that are offered."""
    count = sum(len(offer.gains) for offer in offers)
    return Arrays(offers, pass_s) if count >= MANY else Lists(offers, pass_s)


class Lists:
    def __init__(self, offers: Sequence[Offered], pass_s: Sequence[float]):
        self._offers, self._pass_s = offers, pass_s

    def best(self, price: float, start: float, other_s: float, /) -> tuple[float, Widths | None]:
        ranked = self._ranked(price)
        tokens, spent_s, speed, count = start, other_s, price, 0
        for number, (_, _, _, gain, own_s) in enumerate(ranked, start=1):
            tokens += gain
            spent_s += own_s
            now = tokens / (self._pass_s[number] + spent_s)
            if now > speed:
                speed, count = now, number
        bids = [bid for _, _, bid, _, _ in ranked[:count]]
        return speed, partial(self._widths, bids) if count else None

    def _widths(self, bids: Sequence[int]) -> list[int]:
        return [bids.count(bid) for bid in range(len(self._offers))]

    def _ranked(self, price: float) -> list[tuple[float, int, int, float, float]]:
        """Of each: minus its rank, its place, bid, gain and own seconds."""
        found: list[tuple[float, int, int, float, float]] = []
        for bid, (gains, costs) in enumerate(self._offers):
            ranks = [gain - price * cost for gain, cost in zip(gains, costs, strict=True)]
            if not all(map(ge, ranks, ranks[1:])):
                ranks = falling(ranks)
            places = range(len(ranks))
            found += [
                (-rank, place, bid, gain, cost)
                for rank, place, gain, cost in zip(ranks, places, gains, costs, strict=True)
                if rank > 0.0
            ]
        found.sort()
        return found


class Arrays:
    """gains, costs: [W, B] float64, -inf and 0 behind the end of a bid."""

    def __init__(self, offers: Sequence[Offered], pass_s: Sequence[float]):
        self._lengths = [len(offer.gains) for offer in offers]
        self._gains = _columns([offer.gains for offer in offers], -np.inf)
        self._costs = _columns([offer.costs for offer in offers], 0.0)
        self._pass_s = np.array(pass_s)

    def best(self, price: float, start: float, other_s: float, /) -> tuple[float, Widths | None]:
        order = self._ranked(price)
        if not len(order):
            return price, None
        # Running sums are taken one after the other, as those of the lists.
        tokens = np.cumsum(np.concatenate(([start], self._gains.ravel()[order])))[1:]
        spent_s = np.cumsum(np.concatenate(([other_s], self._costs.ravel()[order])))[1:]
        speeds = tokens / (self._pass_s[1 : len(order) + 1] + spent_s)
        last = int(speeds.argmax())
        speed = float(speeds[last])
        return (speed, partial(self._widths, order[: last + 1])) if speed > price else (price, None)

    def _widths(self, order: npt.NDArray[np.int64]) -> list[int]:
        """order: [n], the places of tokens in ``gains`` row by row."""
        bids = len(self._lengths)
        return np.bincount(order % bids, minlength=bids).tolist()

    def _ranked(self, price: float) -> npt.NDArray[np.int64]:
        """[N]: which tokens, in their order, as places in ``gains`` row by row."""
        ranks = self._gains - price * self._costs
        rising = ranks[1:] > ranks[:-1]
        if rising.any():
            for bid in np.flatnonzero(rising.any(axis=0)).tolist():
                own = ranks[: self._lengths[bid], bid]
                own[:] = falling(own.tolist())
        flat = ranks.ravel()
        worth = np.flatnonzero(flat > 0.0)
        # Stable: equal ranks stay in the order of the rows, which is that of the places.
        return worth[np.argsort(-flat[worth], kind="stable")]


def _columns(values: Sequence[Sequence[float]], missing: float) -> npt.NDArray[np.float64]:
    """[W, B] float64, a column a bid."""
    return np.array(list(zip_longest(*values, fillvalue=missing)), dtype=np.float64)


def falling(ranks: Sequence[float]) -> list[float]:
    """Ranks that never rise, by joining a token to those before it where it is worth more than
    they are: a cheap row behind a dear one is reached through it (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for rank in ranks:
        total, count = rank, 1
        while blocks and blocks[-1][0] * count <= total * blocks[-1][1]:
            more, length = blocks.pop()
            total, count = total + more, count + length
        blocks.append((total, count))
    return [total / count for total, count in blocks for _ in range(count)]
