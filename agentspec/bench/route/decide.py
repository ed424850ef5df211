"""``agentspec route bench``: how long a decision takes, with a long history behind it.

The history is made up by the store's generator and learned row by row, as a gateway would; then
every decision is followed by an outcome, so that nothing worked out before can be used again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentspec.bench.synthetic import record
from agentspec.gateway.choosing import outcome_of
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Situation
from agentspec.routing.estimate import Estimator
from agentspec.routing.learned import Learned, Pacer
from agentspec.routing.outcome import Outcome, Target
from agentspec.routing.router import Router
from agentspec.routing.sessions import Sessions
from agentspec.settings_routing import RoutingSettings

POOL = 2000
SESSIONS = 5000


@dataclass(frozen=True, slots=True)
class Took:
    """Microseconds of a decision by the clock, and (cpu) of the thread's own processor time, which
    other processes disturb less; and of learning from an outcome."""

    rows: int
    backends: int
    n: int
    p50_us: float
    p99_us: float
    most_us: float
    cpu_p50_us: float
    cpu_p99_us: float
    learn_p50_us: float


def run(rows: int, backends: int, count: int, say: Callable[[str], None]) -> Took:
    """Learn from ``rows`` outcomes, then decide ``count`` times between so many backends."""
    settings, rng, now_s = RoutingSettings(), random.Random(0), 1_790_000_000.0
    names = tuple(f"b{i}" for i in range(backends))
    outcomes = [outcome_of(record(rng, n, 0)) for n in range(POOL)]
    router = Router(
        Learned(settings.exploration, settings.miss_usd, Pacer(None), rng.random),
        Estimator(settings.half_life, Target(4.0, 0.05)),
        Sessions(settings.cache_s),
        Circuits(lambda: now_s),
        clock_s=lambda: now_s,
    )

    def following(number: int) -> Outcome:
        session = f"s{rng.randrange(SESSIONS)}"
        return replace(
            outcomes[number % POOL],
            backend=names[rng.randrange(backends)],
            model="m",
            session=session,
            at_s=now_s,
        )

    for number in range(rows):
        router.note(following(number))
        if number % 100_000 == 99_999:
            say(f"learned from {number + 1:,d} rows")
    times_ns, cpu_ns, learned_ns = [], [], []
    for number in range(count):
        outcome = following(number)
        situation = Situation(
            "m", outcome.session, outcome.task.kind, names, task=outcome.task, guess_tok=20_000
        )
        began_cpu_ns, began_ns = time.thread_time_ns(), time.perf_counter_ns()
        router.decide(situation)
        decided_ns = time.perf_counter_ns()
        cpu_ns.append(time.thread_time_ns() - began_cpu_ns)
        router.note(outcome)
        learned_ns.append(time.perf_counter_ns() - decided_ns)
        times_ns.append(decided_ns - began_ns)
    times_ns.sort()
    cpu_ns.sort()
    learned_ns.sort()
    return Took(
        rows,
        backends,
        count,
        times_ns[count // 2] / 1000,
        times_ns[count * 99 // 100] / 1000,
        times_ns[-1] / 1000,
        cpu_ns[count // 2] / 1000,
        cpu_ns[count * 99 // 100] / 1000,
        learned_ns[count // 2] / 1000,
    )
