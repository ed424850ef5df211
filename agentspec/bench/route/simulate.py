"""Traffic through the simulated fleet under one policy: one line of results for each call."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol

from agentspec.backends.load import Load
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Situation
from agentspec.routing.estimate import Estimator, Tariff
from agentspec.routing.learned import Learned, Pacer
from agentspec.routing.outcome import Outcome, Target
from agentspec.routing.policy import Cheapest, Fastest, Fixed, Policy, Slo
from agentspec.routing.router import Router, Rules
from agentspec.routing.sessions import Sessions
from agentspec.routing.taskclass import TaskClass
from agentspec.routing.watch import Seen, Watch
from agentspec.settings_routing import RoutingSettings

from .fleet import PAID, Change, Place, Took, World
from .thompson import LitellmThompson
from .trace import CLIENT, Call, Chain

MODEL = "m"
POLLED_EVERY_S = 2.0
_SOLD = frozenset({PAID.name})


@dataclass(frozen=True, slots=True)
class Line:
    """One call: where it went, what it cost, whether it met the target, and its loss."""

    number: int
    backend: str
    usd: float
    met: bool
    loss_usd: float


class Chooser(Protocol):
    def choose(self, now_s: float, chain: str, call: Call, world: World) -> tuple[str, float]:
        """(backend, requests there as far as the chooser knows)."""
        ...

    def learn(self, outcome: Outcome) -> None: ...


class Static:
    """Everything to one backend."""

    def __init__(self, backend: str):
        self._backend = backend

    def choose(self, now_s: float, chain: str, call: Call, world: World) -> tuple[str, float]:
        return self._backend, 0.0

    def learn(self, outcome: Outcome) -> None:
        pass


class Sampling:
    """The rival, which knows kinds, list prices and nothing else."""

    def __init__(self, places: Iterable[Place], seed: int):
        prices = {p.name: p.prices[0] or p.usd_per_h for p in places}
        self._sampler = LitellmThompson(prices, seed)
        self._names = tuple(prices)

    def choose(self, now_s: float, chain: str, call: Call, world: World) -> tuple[str, float]:
        return self._sampler.choose(call.kind, self._names), 0.0

    def learn(self, outcome: Outcome) -> None:
        self._sampler.learn(outcome.task.kind, outcome.backend, outcome.status == "ok")


class Routed:
    """The gateway's own router. A vendor's list prices are known to it, as to a gateway; what calls
    of other backends cost it learns."""

    def __init__(self, policy: Policy, settings: RoutingSettings, places: Iterable[Place]):
        names = [place.name for place in places]
        self._names = tuple(names)
        self._now_s = 0.0
        self._polled_s = dict.fromkeys(names, -POLLED_EVERY_S)
        self._watch = Watch({}, POLLED_EVERY_S)
        self._watch.seen = {name: Seen() for name in names}
        target = Target(settings.ttft_ms / 1000, settings.tpot_ms / 1000)
        self.router = Router(
            policy,
            Estimator(settings.half_life, target, tariff=self._listed, sold=_SOLD),
            Sessions(settings.cache_s),
            Circuits(lambda: self._now_s),
            clock_s=lambda: self._now_s,
            rules=Rules(sold=_SOLD),
            watch=self._watch,
        )
        self._places, self._number = {p.name: p for p in places}, 0
        self._world: World | None = None
        self._pacer = policy.pacer if isinstance(policy, Learned) else None

    def choose(self, now_s: float, chain: str, call: Call, world: World) -> tuple[str, float]:
        self._now_s, self._world = now_s, world
        for name in self._names:
            if now_s - self._polled_s[name] >= POLLED_EVERY_S and world.places[name].throughput:
                self._polled_s[name] = now_s
                seen = self._watch.seen[name]
                seen.load, seen.begun = Load(running=world.load(name, now_s)), 0
        situation = Situation(
            MODEL,
            chain,
            call.kind,
            self._names,
            task=TaskClass(call.kind, CLIENT),
            guess_tok=call.in_tok,
        )
        decision = self.router.decide(situation)
        self._watch.begun(decision.order[0])
        self._number += 1
        return decision.order[0], decision.load or 0.0

    def _listed(self, backend: str, model: str, in_tok: float) -> Tariff | None:
        if self._world is None or not any(self._places[backend].prices):
            return None
        return Tariff(*self._world.now(self._places[backend], self._number).prices)

    def learn(self, outcome: Outcome) -> None:
        self.router.note(outcome)
        if self._pacer is not None:
            self._pacer.spent((outcome.cost_nusd or 0) / 1e9, outcome.at_s)


def chooser(name: str, places: tuple[Place, ...], settings: RoutingSettings, seed: int) -> Chooser:
    """By the name in the table. Raises ``ValueError`` for one that isn't there."""
    kind, _, backend = name.partition(":")
    if kind == "static" and any(p.name == backend for p in places):
        return Static(backend)
    if name == LitellmThompson.name:
        return Sampling(places, seed)
    if name == "learned":
        pacer = Pacer(settings.budget_usd_per_h)
        draw = Random(seed).random
        policy: Policy = Learned(settings.exploration, settings.miss_usd, pacer, draw)
    elif name == "slo":
        policy = Slo(settings.target_share)
    elif name in ("cheapest", "fastest", "fixed"):
        policy = {"cheapest": Cheapest, "fastest": Fastest, "fixed": Fixed}[name]()
    else:
        known = ", ".join(f"static:{p.name}" for p in places)
        raise ValueError(
            f"no policy '{name}': there are fixed, cheapest, fastest, slo, learned, "
            f"{LitellmThompson.name}, {known}"
        )
    return Routed(policy, settings, places)


def run(
    choosing: Chooser,
    arrivals: Iterable[tuple[float, Chain]],
    places: tuple[Place, ...],
    settings: RoutingSettings,
    *,
    count: int,
    seed: int,
    changes: tuple[Change, ...] = (),
) -> Iterator[Line]:
    """The first ``count`` calls, in the order in which they are made."""
    world = World(seed, {place.name: place for place in places}, changes)
    target = Target(settings.ttft_ms / 1000, settings.tpot_ms / 1000)
    # (time, tie, chain, turn) of calls to make, or (time, tie, outcome, None) of those that end.
    heap: list[tuple[float, int, Chain | Outcome, int | None]] = []
    tie = 0
    for at_s, chain in arrivals:
        heap.append((at_s, tie := tie + 1, chain, 0))
    heapq.heapify(heap)
    number = 0
    while heap and number < count:
        now_s, _, what, turn = heapq.heappop(heap)
        if isinstance(what, Outcome):
            world.running[what.backend] -= 1
            choosing.learn(what)
            continue
        assert turn is not None
        call = what.calls[turn]
        backend, load = choosing.choose(now_s, what.id, call, world)
        took = world.call(
            backend, number, what.id, turn, now_s, call.kind,
            call.in_tok, call.out_tok, call.shared_tok,
        )  # fmt: skip
        outcome = _outcome(backend, load, what.id, call, now_s, took)
        ends_s = now_s + took.ttft_s + took.token_s * (call.out_tok - 1)
        world.running[backend] = world.running.get(backend, 0) + 1
        heapq.heappush(heap, (ends_s, tie := tie + 1, outcome, None))
        if turn + 1 < len(what.calls):
            following_s = ends_s + what.calls[turn + 1].think_s
            heapq.heappush(heap, (following_s, tie := tie + 1, what, turn + 1))
        met = outcome.met(target)
        loss = took.cost_nusd / 1e9 + (0.0 if met else settings.miss_usd)
        yield Line(number, backend, took.cost_nusd / 1e9, met, loss)
        number += 1


def _outcome(
    backend: str, load: float, chain: str, call: Call, now_s: float, took: Took
) -> Outcome:
    task = TaskClass(call.kind, CLIENT)
    if not took.ok:
        return Outcome(backend, task, MODEL, chain, now_s, status="error", load=load)
    return Outcome(
        backend,
        task,
        MODEL,
        chain,
        now_s,
        in_tok=call.in_tok,
        cached_tok=took.cached_tok,
        out_tok=call.out_tok,
        steps=took.steps if took.steps < call.out_tok else 0,
        accepted=call.out_tok - took.steps if took.steps < call.out_tok else 0,
        ttft_s=took.ttft_s,
        token_s=took.token_s if call.out_tok > 1 else None,
        load=load,
        guess_tok=call.in_tok,
        fresh_nusd=took.fresh_nusd,
        cached_nusd=took.cached_nusd,
        out_nusd=took.out_nusd,
    )
