"""A simulated fleet: what calls really take and cost, from published tables, with drift.

Nothing here is the estimator's formula: a token's time is read off measured throughput by
concurrency, straight lines between the points, and scaled by measured accepted lengths; times are
spread by chance, drift slowly, and jump where a change is planned.

The tables (aggregate tokens a second by concurrency):

- ``dspark``, ``plain``: DeepSeek-V4-Pro on 8xB300 with vLLM, adaptive verification and none (the
  DSpark blog's figure 3, SPEED-Bench);
- ``amd``: V4-Flash on MI355X, adaptive (vllm#52362, ShareGPT, 512 tokens out);
- accepted lengths of mixed traffic 5.24, 3.78 and 2.91 (SGLang's DSpark report: gsm8k, arena-hard,
  poetry), taken for tool calls, titles and chat;
- ``paid``: 25, 39 and 62 tokens a second at the 10th, 50th and 90th percentile as Claude Code's
  users saw them (kv-cache-tester's traces), time to first token 0.53 s (ai-gateway-bench), and
  $3, $0.30 and $15 a million tokens.

Assumed, since no table was found: prefill rates, prices by the hour, error rates, how long caches
live, and the load that others put on each engine.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass, field, replace

ACCEPTED = {"tool": 5.24, "title": 3.78, "chat": 2.91}
_USUAL_LENGTH = 3.78


@dataclass(frozen=True, slots=True)
class Place:
    """One backend. throughput: ((concurrency, tokens a second of all), ...); empty: a vendor's,
    whose token times do not depend on us. usd_per_h: of the node, shared by those that run on it.

    lively: speculates, so that a token's time follows the accepted length. others: the load that
    others put on it, on the average. prices: nano-USD a token (fresh, cached, out), of a vendor.
    """

    name: str
    throughput: tuple[tuple[float, float], ...] = ()
    lively: bool = False
    prefill_tok_s: float = 20_000.0
    usd_per_h: float = 0.0
    others: float = 0.0
    base_s: float = 0.15
    prices: tuple[float, float, float] = (0.0, 0.0, 0.0)
    token_s: float = 0.0
    spread: float = 0.15
    errors: float = 0.002
    cache_s: float = 1800.0


DSPARK = Place(
    "dspark",
    ((1, 269), (16, 2037), (32, 3361), (64, 5197), (128, 7417), (256, 9719)),
    lively=True,
    prefill_tok_s=30_000.0,
    usd_per_h=48.0,
    others=40.0,
)
PLAIN = Place(
    "plain",
    ((1, 101), (16, 1124), (32, 1664), (64, 2774), (128, 4406), (256, 6323)),
    prefill_tok_s=30_000.0,
    usd_per_h=40.0,
    others=60.0,
)
AMD = Place(
    "amd",
    ((4, 902), (8, 1617), (16, 2774), (32, 4501), (64, 7144), (128, 10356), (256, 13325)),
    lively=True,
    prefill_tok_s=9_000.0,
    usd_per_h=20.0,
    others=90.0,
    errors=0.01,
)
PAID = Place(
    "paid",
    base_s=0.53,
    prefill_tok_s=60_000.0,
    prices=(3000.0, 300.0, 15000.0),
    token_s=1 / 39,
    spread=0.35,
    errors=0.004,
    cache_s=300.0,
)
FLEET = (PAID, DSPARK, PLAIN, AMD)


@dataclass(frozen=True, slots=True)
class Change:
    """From a request's number on a place is so many times slower and dearer."""

    at: int
    place: str
    slower: float = 1.0
    dearer: float = 1.0


@dataclass(frozen=True, slots=True)
class Took:
    """What one call took and cost."""

    ok: bool
    ttft_s: float
    token_s: float
    cached_tok: int
    fresh_nusd: int
    cached_nusd: int
    out_nusd: int
    steps: int

    @property
    def cost_nusd(self) -> int:
        return self.fresh_nusd + self.cached_nusd + self.out_nusd


@dataclass(slots=True)
class World:
    """The fleet while traffic runs through it. Its chances depend on seed, call and place alone."""

    seed: int
    places: dict[str, Place]
    changes: tuple[Change, ...] = ()
    running: dict[str, int] = field(default_factory=dict)
    texts: dict[tuple[str, str], tuple[int, int, float]] = field(default_factory=dict)

    def load(self, name: str, at_s: float) -> float:
        """Requests on a place: ours, and others', which come and go over hours."""
        place, phase = self.places[name], sum(map(ord, name)) % 7
        wave = 1.0 + 0.5 * math.sin(2 * math.pi * (at_s / 7200.0 + phase / 7.0))
        return self.running.get(name, 0) + place.others * wave

    def cached(self, name: str, chain: str, turn: int, shared_tok: int, at_s: float) -> int:
        """Prompt tokens in the place's cache: what both its last visit and this call share."""
        seen = self.texts.get((name, chain))
        if seen is None or at_s - seen[2] > self.places[name].cache_s:
            return 0
        return min(shared_tok, seen[0]) // 64 * 64

    def call(
        self,
        name: str,
        number: int,
        chain: str,
        turn: int,
        at_s: float,
        call_kind: str,
        in_tok: int,
        out_tok: int,
        shared_tok: int,
    ) -> Took:
        """Run one call, the ``number``-th of all and ``turn``-th of its chain."""
        place = self.now(self.places[name], number)
        rng = random.Random(f"{self.seed} {chain} {turn} {name}")
        ok = rng.random() >= place.errors
        cached = self.cached(name, chain, turn, shared_tok, at_s)
        fresh = in_tok - cached
        drift = self._drift(name, at_s)
        load = self.load(name, at_s) + 1.0
        prefill_s = fresh / place.prefill_tok_s * drift
        waits_s = place.base_s + prefill_s * (1.0 + load / 64.0 if place.throughput else 1.0)
        token_s = self._token_s(place, load, call_kind) * drift
        ttft_s = waits_s * rng.lognormvariate(0.0, 0.25) + token_s
        token_s *= rng.lognormvariate(0.0, place.spread)
        if not ok:
            return Took(False, ttft_s, 0.0, 0, 0, 0, 0, 0)
        self.texts[name, chain] = (in_tok + out_tok, turn, at_s)
        length = ACCEPTED[call_kind] if place.lively else 1.0
        price = _cost(place, fresh, cached, out_tok, prefill_s, token_s, load)
        return Took(True, ttft_s, token_s, cached, *price, max(1, round(out_tok / length)))

    def now(self, place: Place, number: int) -> Place:
        """The place as it is when the ``number``-th call is made."""
        for change in self.changes:
            if change.place == place.name and number >= change.at:
                place = replace(
                    place,
                    throughput=tuple((c, rate / change.slower) for c, rate in place.throughput),
                    token_s=place.token_s * change.slower,
                    prefill_tok_s=place.prefill_tok_s / change.slower,
                    base_s=place.base_s * change.slower,
                    usd_per_h=place.usd_per_h * change.dearer,
                    prices=tuple(p * change.dearer for p in place.prices),
                )
        return place

    def _token_s(self, place: Place, load: float, kind: str) -> float:
        """Seconds a token of one stream among so many."""
        if not place.throughput:
            return place.token_s
        rate = _between(place.throughput, load)
        length = ACCEPTED[kind] / _USUAL_LENGTH if place.lively else 1.0
        return max(load, place.throughput[0][0]) / rate / length

    def _drift(self, name: str, at_s: float) -> float:
        """Slow changes of a place's speed, up to some 25 % either way, other in every world."""
        rng = random.Random(f"{self.seed} {name}")
        waves = [(rng.uniform(1800, 20_000), rng.uniform(0, 6.28)) for _ in range(3)]
        return math.exp(0.08 * sum(math.sin(at_s / period + phase) for period, phase in waves))


def _between(points: tuple[tuple[float, float], ...], at: float) -> float:
    """Straight lines between the points; beyond them as at the last one."""
    index = bisect_left([x for x, _ in points], at)
    if index == 0:
        return points[0][1]
    if index == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[index - 1], points[index]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def _cost(
    place: Place, fresh: int, cached: int, out: int, prefill_s: float, token_s: float, load: float
) -> tuple[int, int, int]:
    """Nano-USD (fresh, cached, out): of a list, or the node's time that the call took up."""
    if not place.throughput:
        prices = place.prices
        return round(fresh * prices[0]), round(cached * prices[1]), round(out * prices[2])
    nusd_per_s = place.usd_per_h / 3600.0 * 1e9
    return round(prefill_s * nusd_per_s), 0, round(token_s * out / load * nusd_per_s)
