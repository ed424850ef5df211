"""Calls that hold: how often backends are asked, against scripted ones, counted at the backend."""

from __future__ import annotations

import asyncio

import pytest

from agentspec.backends.base import Turn
from agentspec.routing.attempts import Attempts
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Decision, Situation
from agentspec.routing.retry import AT_FIRST, SHARE, TRIES_OF_ONE
from agentspec.wire.errors import (
    AgentspecError,
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tests.routing.scripted import REQUEST, TURN, Clock, Served, fixed


class World:
    def __init__(self, *backends: Served, windows: dict[str, int] | None = None):
        self.clock = Clock()
        self.circuits = Circuits(self.clock)
        self.backends = {b.name: b for b in backends}
        found = windows or {}
        self.attempts = Attempts(
            self.backends, self.circuits, windows=found.get, pace=self.clock.pace()
        )
        self.policy = fixed(self.circuits)

    async def ask(self, turn: Turn = TURN) -> str | AgentspecError:
        """The name of the backend that answered, or the error."""
        names = tuple(self.backends)
        decision = self.policy.decide(Situation("m", "s", "chat", names))
        try:
            return (await self.attempts.complete(decision, turn)).id
        except AgentspecError as error:
            return error
        finally:
            self.attempts.ended(decision)
            self.decision: Decision = decision

    @property
    def asked(self) -> int:
        return sum(b.asked for b in self.backends.values())


def always(error: AgentspecError):
    return lambda _: error


KINDS = [UpstreamUnreachable("x"), UpstreamDisconnected("x"), UpstreamTimeout("x")]
STATUSES = [UpstreamFailed("x", status=s) for s in (429, 500, 503)]


@pytest.mark.parametrize("error", KINDS + STATUSES, ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("step_s", [0.0, 0.3])
async def test_an_outage_is_not_made_worse(error, count, step_s):
    """Every backend fails all the while: at most 1.1 calls a request, whatever the failure."""
    world = World(*(Served(f"b{n}", always(error)) for n in range(count)))
    for _ in range(200):
        assert isinstance(await world.ask(), AgentspecError)
        world.clock.now_s += step_s
    assert 200 <= world.asked <= 220


async def test_an_outage_that_meets_many_requests_at_once():
    away = UpstreamUnreachable("x")
    world = World(Served("a"), Served("b"))
    for _ in range(50):
        await world.ask()
    before = world.asked
    for backend in world.backends.values():
        backend.verdict = always(away)
    for _ in range(25):
        assert all(
            isinstance(e, AgentspecError)
            for e in await asyncio.gather(*(world.ask() for _ in range(16)))
        )
    assert world.asked - before <= 1.1 * 400


async def test_the_budget_alone_bounds_what_is_added():
    """Circuits that never open leave it to the bucket."""
    flaky = UpstreamFailed("x", status=500)
    world = World(Served("a", lambda n: flaky if n % 2 else None), Served("b", always(flaky)))
    for _ in range(1000):
        await world.ask()
    assert world.asked <= 1000 * (1 + SHARE) + AT_FIRST


async def test_a_backend_that_stands_in_may_do_so_for_good():
    """One of two is bad half of the time, its circuit never opens: all are answered."""
    flaky = UpstreamFailed("x", status=500)
    world = World(Served("a", lambda n: flaky if n % 2 else None), Served("b"))
    answers = [await world.ask() for _ in range(300)]
    assert set(answers) == {"a", "b"}


async def test_a_crash_with_many_calls_in_flight_fails_none():
    """100 calls wait for a backend's first byte when it dies: all are answered by the other."""
    first, second = Served("a"), Served("b")
    world = World(first, second)
    known = Decision("t", ("b",), (), "")
    await world.attempts.complete(known, TURN)  # it works
    world.attempts.ended(known)
    first.gate, first.verdict = asyncio.Event(), always(UpstreamDisconnected("x"))
    tasks = [asyncio.create_task(world.ask()) for _ in range(100)]
    while first.asked < 100:
        await asyncio.sleep(0)
    assert world.attempts.in_flight == {"a": 100, "b": 0}
    first.gate.set()
    assert await asyncio.gather(*tasks) == ["b"] * 100
    assert world.attempts.in_flight == {"a": 0, "b": 0}


async def test_one_backend_is_asked_again_after_a_pause_that_grows():
    failing = UpstreamFailed("x", status=503)
    world = World(Served("a", lambda n: failing if n < TRIES_OF_ONE - 1 else None))
    assert await world.ask() == "a"
    assert world.asked == TRIES_OF_ONE and world.clock.slept == [0.1, 0.2]
    reason = world.decision.why()
    assert "asked again after upstream_error, upstream_error" in reason


async def test_the_pause_is_what_retry_after_says_and_jitter():
    told = UpstreamFailed("x", status=429, headers={"Retry-After": "2"})
    world = World(Served("a", lambda n: told if n < 1 else None))
    assert await world.ask() == "a" and world.clock.slept == [2.1]


@pytest.mark.parametrize(
    "error",
    [
        UpstreamFailed("x", status=429, headers={"Retry-After": "60"}),
        UpstreamFailed("x", status=500, headers={"x-should-retry": "false"}),
        UpstreamFailed("x", status=500, code="constraint_not_met"),
        UpstreamFailed("x", status=502, code="invalid_answer"),
        UpstreamFailed("x", status=429, code="insufficient_quota"),
        UpstreamDisconnected("x"),
        UpstreamTimeout("x"),
        UpstreamFailed("x", status=504, code="deadline_exceeded"),
        UpstreamFailed("x", status=400),
        UpstreamFailed("x"),
    ],
    ids=lambda e: f"{type(e).__name__} {e.status} {e.code}",
)
async def test_what_is_not_asked_again_of_the_same_backend(error):
    world = World(Served("a", always(error)))
    assert await world.ask() is error and world.asked == 1


async def test_what_a_model_says_opens_no_circuit():
    world = World(Served("a", always(UpstreamFailed("x", status=502, code="invalid_tool_call"))))
    for _ in range(5):
        await world.ask()
    assert world.circuits.ready("a")


LONG = UpstreamFailed(
    "This model's maximum context length is 4096 tokens. However, your messages resulted in 9000 "
    "tokens.",
    status=400,
    code="context_length_exceeded",
)


@pytest.mark.parametrize(
    ("windows", "answer"),
    [
        ({"a": 4096, "b": 8192, "c": 32768}, "c"),  # b is larger, and still too small
        ({"b": 16384, "c": 32768}, "b"),
        ({"a": 4096, "b": 4096}, None),
        ({}, None),
    ],
)
async def test_a_prompt_that_is_too_long_goes_to_a_larger_window(windows, answer):
    world = World(Served("a", always(LONG)), Served("b"), Served("c"), windows=windows)
    found = await world.ask()
    assert found == answer if answer else found is LONG
    assert world.circuits.ready("a")  # a verdict, not a failure


async def test_each_backend_is_asked_for_its_own_name_of_the_model():
    away = UpstreamUnreachable("x")
    first, second = Served("a", always(away)), Served("b")
    turn = Turn("1", REQUEST, {}, "plain", 9, upstream_names={"b": "openai/other"})
    assert await World(first, second).ask(turn) == "b"
    assert (first.models_asked, second.models_asked) == (["plain"], ["openai/other"])


async def test_a_cancelled_call_is_over():
    slow = Served("a")
    slow.gate = asyncio.Event()
    world = World(slow)
    task = asyncio.create_task(world.ask())
    while not slow.asked:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.attempts.in_flight == {"a": 0} and world.circuits.ready("a")


async def test_a_stream_that_breaks_off_counts_against_its_backend():
    world = World(Served("a"))
    decision = world.policy.decide(Situation("m", "s", "chat", ("a",)))
    await world.attempts.open_stream(decision, TURN)
    assert world.attempts.in_flight == {"a": 1}
    world.attempts.broke(decision, UpstreamDisconnected("x"))
    world.attempts.ended(decision)
    world.attempts.ended(decision)
    assert world.attempts.in_flight == {"a": 0} and not world.circuits.ready("a")
