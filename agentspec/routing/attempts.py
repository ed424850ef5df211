"""Carry a decision out: try its backends in order, as long as nothing has reached the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from agentspec.backends import checking
from agentspec.backends.base import Backend, Turn
from agentspec.wire.chat import ChatChunk, ChatResponse
from agentspec.wire.context import overflow
from agentspec.wire.errors import (
    AgentspecError,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)

from .circuit import Circuits
from .decision import Decision
from .retry import RAN, RetryBudget, again_s

Result = TypeVar("Result")
QUEUE_STEP_S = 0.05
QUEUE_MOST_S = 5.0


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """A stream whose first chunk has come: from here on there is no way back."""

    first: ChatChunk
    rest: AsyncGenerator[ChatChunk]


@dataclass(frozen=True, slots=True)
class Pace:
    """How attempts wait. jitter: in [0, 1)."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = field(default_factory=lambda: Random().random)


def may_fall_back(error: AgentspecError) -> bool:
    """Whether another backend may answer better. A 4xx verdict on the request is final."""
    if not isinstance(error, UpstreamFailed) or error.code == "deadline_exceeded":
        return False
    if isinstance(error, UpstreamUnreachable | UpstreamTimeout):
        return True
    return error.status is None or error.status >= 500 or error.status == 429


def _at_fault(error: AgentspecError) -> bool:
    """Whether an error says something of the backend, and not of what its model said."""
    return may_fall_back(error) and error.code not in RAN


class Attempts:
    """Tries backends by the decisions of a policy, and tells the circuits what it met.

    windows: a backend's context in tokens, where it is known. in_flight: calls that run, by
    backend; a stream's until ``ended``.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        circuits: Circuits,
        *,
        windows: Callable[[str], int | None] = lambda _: None,
        pace: Pace | None = None,
    ):
        self._backends = backends
        self._circuits = circuits
        self._windows = windows
        self._pace = pace or Pace()
        self._budget = RetryBudget()
        self.in_flight: dict[str, int] = dict.fromkeys(backends, 0)

    async def complete(self, decision: Decision, turn: Turn) -> ChatResponse:
        """The whole answer. Raises the last backend's error when none answers."""
        return await self.first_success(decision, lambda b: checking.complete(b, turn.at(b.name)))

    async def open_stream(self, decision: Decision, turn: Turn) -> OpenedStream:
        """The first stream to yield a chunk. The caller closes ``rest``."""

        async def open_one(backend: Backend) -> OpenedStream:
            chunks = checking.chat(backend, turn.at(backend.name))
            try:
                return OpenedStream(await anext(chunks), chunks)
            except StopAsyncIteration:
                raise UpstreamFailed(f"Backend '{backend.name}' sent an empty stream.") from None

        return await self.first_success(decision, open_one)

    async def first_success(
        self, decision: Decision, attempt: Callable[[Backend], Awaitable[Result]]
    ) -> Result:
        """What the first backend that succeeds returns. Raises the last one's error."""
        assert decision.order, "a decision names at least one backend"
        self._budget.request()
        left, tried, was_ready = list(decision.order), 0, True
        name = left.pop(0)
        while True:
            tried += 1
            was_ready = self._circuits.ready(name) if tried == 1 else was_ready
            try:
                result = await self._call(decision, name, attempt)
            except AgentspecError as error:
                following = await self._next(name, left, error, tried if was_ready else 0)
                if following is None:
                    raise
                if following != name:
                    tried = 0
                name = following
                continue
            if len(decision.attempts) > 1:
                self._budget.worked()
            return result

    async def _call(
        self, decision: Decision, name: str, attempt: Callable[[Backend], Awaitable[Result]]
    ) -> Result:
        """One call of one backend; its circuit learns how it went."""
        backend = self._backends[name]
        decision.begin(backend)
        self._circuits.enter(name)
        self.in_flight[name] = self.in_flight.get(name, 0) + 1
        try:
            result = await attempt(backend)
        except AgentspecError as error:
            self.ended(decision)
            decision.failed(error)
            if _at_fault(error):
                self._circuits.failed(name, error)
            else:
                self._circuits.succeeded(name)
            raise
        except BaseException:
            self.ended(decision)
            self._circuits.left(name)
            raise
        self._circuits.succeeded(name)
        return result

    def ended(self, decision: Decision) -> None:
        """The call that was begun last is over. May be told twice."""
        if decision.running:
            self.in_flight[decision.running] -= 1
            decision.running = ""

    async def _next(
        self, name: str, left: list[str], error: AgentspecError, tried: int
    ) -> str | None:
        """The backend to ask after ``name`` failed, taken from ``left``; None: none.

        tried: how often ``name`` was; 0 where it was asked although its circuit was open, since all
        were: then nothing is to be gained by asking more of them.
        """
        if error.code == "context_length_exceeded":
            return self._roomier(name, left, error)
        if not tried or not may_fall_back(error):
            return None
        if left:
            following = left.pop(0)
            return following if await self._may_go_on(following) else None
        wait_s = again_s(error, tried, self._circuits.told_s(error), self._pace.jitter())
        if wait_s is None or not self._budget.take():
            return None
        await self._pace.sleep(wait_s)
        return name

    def broke(self, decision: Decision, error: AgentspecError) -> None:
        """The answer broke off after its first byte."""
        if _at_fault(error):
            self._circuits.failed(decision.chosen, error)

    async def _may_go_on(self, following: str) -> bool:
        """Take a token. Where none is left, and the next backend works, others' success is waited
        for: one that dies with many calls in flight must not fail them all."""
        waited_s = 0.0
        while not self._budget.take():
            if not self._circuits.proven(following) or waited_s >= QUEUE_MOST_S:
                return False
            pause_s = QUEUE_STEP_S * (0.5 + self._pace.jitter())
            await self._pace.sleep(pause_s)
            waited_s += pause_s
        return True

    def _roomier(self, name: str, left: list[str], error: AgentspecError) -> str | None:
        """A backend with a larger window than the one that was too small. Its answer is no retry:
        the first was a verdict, and cost nothing."""
        told = overflow(error.message)
        small = max(self._windows(name) or 0, told.context if told else 0)
        needed = told.prompt if told else 0
        while left:
            following = left.pop(0)
            window = self._windows(following)
            if window is not None and window > max(small, needed):
                return following
        return None
