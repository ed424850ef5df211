"""Who is tried, in which order, how often; against scripted backends and a hand-set clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from agentspec.backends.base import Turn
from agentspec.routing.attempts import Attempts, Pace, may_fall_back
from agentspec.routing.circuit import LONGEST_S, Circuits
from agentspec.routing.decision import Decision, Situation
from agentspec.wire.chat import ChatChunk, ChatResponse, decode_request
from agentspec.wire.errors import (
    AgentspecError,
    InvalidRequest,
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from agentspec.wire.service import ModelCard
from tests.routing.scripted import fixed

REQUEST = decode_request(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
TURN = Turn(id="1", request=REQUEST, body={}, upstream_model="m", created_s=9)
SITUATION = Situation("m", "s", "chat", ("a", "b", "c"))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scripted:
    """A backend that fails with a given error, at once or after its first chunk."""

    kind = "openai"

    def __init__(self, name: str, error: AgentspecError | None = None, *, chunks_first: int = 0):
        self.name = name
        self.asked = 0
        self._error = error
        self._chunks_first = chunks_first

    async def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        self.asked += 1
        for _ in range(self._chunks_first):
            yield ChatChunk(id=self.name, created=0, model="m", choices=[])
        if self._error:
            raise self._error

    async def complete(self, turn: Turn) -> ChatResponse:
        self.asked += 1
        if self._error:
            raise self._error
        return ChatResponse(id=self.name, created=0, model="m", choices=[])

    async def models(self) -> list[ModelCard]:
        return []

    async def health(self) -> bool:
        return True

    async def aclose(self) -> None:
        return None


def made(*backends: Scripted) -> tuple[Attempts, Decision, Circuits]:
    circuits = Circuits(Clock())
    names = tuple(backend.name for backend in backends)
    decision = fixed(circuits).decide(Situation("m", "s", "chat", names))
    made = Attempts({b.name: b for b in backends}, circuits, pace=NO_PACE)
    return made, decision, circuits


async def no_sleep(_: float) -> None:
    return None


NO_PACE = Pace(no_sleep, lambda: 0.5)


RETRIED = [
    UpstreamUnreachable("x"),
    UpstreamDisconnected("x"),
    UpstreamTimeout("x"),
    UpstreamFailed("x", status=500),
    UpstreamFailed("x", status=429),
    UpstreamFailed("x"),
]
FINAL = [
    UpstreamFailed("x", status=400),
    UpstreamFailed("x", status=404),
    UpstreamFailed("x", status=422),
    InvalidRequest("x"),
]


@pytest.mark.parametrize("error", RETRIED, ids=repr)
async def test_what_another_backend_may_do_better(error):
    first, second = Scripted("a", error), Scripted("b")
    attempts, decision, _ = made(first, second)
    assert may_fall_back(error)
    assert (await attempts.complete(decision, TURN)).id == "b"
    assert (decision.chosen, [a.backend for a in decision.attempts]) == ("b", ["a", "b"])


@pytest.mark.parametrize("error", FINAL, ids=repr)
async def test_a_verdict_is_final(error):
    first, second = Scripted("a", error), Scripted("b", None)
    attempts, decision, _ = made(first, second)
    with pytest.raises(type(error)):
        await attempts.complete(decision, TURN)
    assert second.asked == 0 and decision.chosen == "a"


async def test_the_last_error_is_the_answer():
    attempts, decision, _ = made(Scripted("a", RETRIED[0]), Scripted("b", RETRIED[2]))
    with pytest.raises(UpstreamFailed) as failure:
        await attempts.complete(decision, TURN)
    assert failure.value is RETRIED[2]


async def test_a_stream_falls_back_before_its_first_chunk_only():
    early = Scripted("a", UpstreamFailed("x"))
    late = Scripted("b", UpstreamFailed("x"), chunks_first=1)
    never = Scripted("c", chunks_first=1)
    attempts, decision, _ = made(early, late, never)
    opened = await attempts.open_stream(decision, TURN)
    assert opened.first.id == "b"
    with pytest.raises(UpstreamFailed):
        await anext(opened.rest)
    assert never.asked == 0


async def test_an_empty_stream_is_a_failure():
    attempts, decision, _ = made(Scripted("a"), Scripted("b", chunks_first=1))
    assert (await attempts.open_stream(decision, TURN)).first.id == "b"


@pytest.mark.parametrize("kind", [UpstreamUnreachable, UpstreamDisconnected])
async def test_only_connection_failures_cool_down(kind):
    answered = UpstreamFailed("x", status=500)
    attempts, decision, circuits = made(Scripted("a", answered), Scripted("b", kind("x")))
    with pytest.raises(kind):
        await attempts.complete(decision, TURN)
    assert circuits.remaining_s("a") == 0.0 and circuits.remaining_s("b") > 0


async def test_the_reason_is_that_of_the_backend_that_was_chosen():
    broken = UpstreamFailed("x", code="oops")
    attempts, decision, _ = made(Scripted("a", broken), Scripted("b", broken), Scripted("c"))
    assert decision.why() == "first in the configured order"
    await attempts.complete(decision, TURN)
    record = decision.as_record()
    assert record["chosen"] == "c" and record["reason"] == (
        "'a' (first in the configured order) failed (oops), 'b' failed (oops); 'c' is next in order"
    )


def test_static_order():
    clock = Clock()
    circuits = Circuits(clock)
    policy = fixed(circuits)
    fresh = policy.decide(SITUATION)
    assert fresh.order == ("a", "b", "c") and fresh.propensity == 1.0
    circuits.failed("a", UpstreamUnreachable("x"))
    cooling = policy.decide(SITUATION)
    assert cooling.order == ("b", "c", "a")
    found = {c.backend: c for c in cooling.candidates}
    assert {n: c.eligible for n, c in found.items()} == {"a": False, "b": True, "c": True}
    assert "cooling down" in found["a"].reason
    clock.now_s += 1.01
    assert policy.decide(SITUATION).order == ("a", "b", "c")
    for name in SITUATION.backends:
        circuits.failed(name, UpstreamUnreachable("x"))
    assert set(policy.decide(SITUATION).order) == set(SITUATION.backends)


def test_a_pause_doubles_up_to_a_limit_and_ends_with_success():
    circuits = Circuits(Clock())
    pauses = []
    for _ in range(8):
        circuits.failed("a", UpstreamUnreachable("x"))
        pauses.append(circuits.remaining_s("a"))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0] and pauses[-1] == LONGEST_S
    circuits.succeeded("a")
    assert circuits.remaining_s("a") == 0.0
    circuits.failed("a", UpstreamUnreachable("x"))
    assert circuits.remaining_s("a") == 1.0


def test_a_decision_is_logged_as_plain_json():
    import json

    _, decision, _ = made(Scripted("a"), Scripted("b"))
    record = decision.as_record()
    assert json.loads(json.dumps(record)) == record
    assert record["candidates"][0] == {"backend": "a", "eligible": True, "reason": "available"}
    assert record["policy"] == "fixed"
