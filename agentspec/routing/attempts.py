"""Carry a decision out: try its backends in order, as long as nothing has reached the client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from agentspec.backends import checking
from agentspec.backends.base import Backend, Turn
from agentspec.wire.chat import ChatChunk, ChatResponse
from agentspec.wire.errors import (
    AgentspecError,
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)

from .cooldown import Cooldown
from .decision import Decision

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """A stream whose first chunk has come: from here on there is no way back."""

    first: ChatChunk
    rest: AsyncGenerator[ChatChunk]


def may_fall_back(error: AgentspecError) -> bool:
    """Whether another backend may answer better. A 4xx verdict on the request is final."""
    if not isinstance(error, UpstreamFailed):
        return False
    if isinstance(error, UpstreamUnreachable | UpstreamTimeout):
        return True
    return error.status is None or error.status >= 500 or error.status == 429


class Attempts:
    """Tries backends by the decisions of a policy, and tells the cool-down what it met."""

    def __init__(self, backends: Mapping[str, Backend], cooldown: Cooldown):
        self._backends = backends
        self._cooldown = cooldown

    async def complete(self, decision: Decision, turn: Turn) -> ChatResponse:
        """The whole answer. Raises the last backend's error when none answers."""
        return await self.first_success(decision, lambda b: checking.complete(b, turn))

    async def open_stream(self, decision: Decision, turn: Turn) -> OpenedStream:
        """The first stream to yield a chunk. The caller closes ``rest``."""

        async def open_one(backend: Backend) -> OpenedStream:
            chunks = checking.chat(backend, turn)
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
        last = decision.order[-1]
        for name in decision.order:
            backend = self._backends[name]
            decision.begin(backend)
            try:
                result = await attempt(backend)
            except AgentspecError as error:
                decision.failed(error)
                if isinstance(error, UpstreamUnreachable | UpstreamDisconnected):
                    self._cooldown.failed(name)
                if name == last or not may_fall_back(error):
                    raise
            else:
                self._cooldown.succeeded(name)
                return result
        raise AssertionError("unreachable: the last attempt returns or raises")
