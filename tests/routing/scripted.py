"""Backends that follow a script, a clock set by hand, sleeps that only move it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from agentspec.backends.base import Turn
from agentspec.routing.attempts import Pace
from agentspec.routing.circuit import Circuits
from agentspec.routing.estimate import Estimator
from agentspec.routing.outcome import Target
from agentspec.routing.policy import Fixed
from agentspec.routing.router import Router
from agentspec.routing.sessions import Sessions
from agentspec.wire.chat import ChatChunk, ChatResponse, decode_request
from agentspec.wire.errors import AgentspecError
from agentspec.wire.service import ModelCard

REQUEST = decode_request(b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
TURN = Turn(id="1", request=REQUEST, body={}, upstream_model="m", created_s=9)


class Clock:
    """Monotonic seconds; ``sleep`` moves it and lets others run."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    def pace(self, jitter: float = 0.5) -> Pace:
        return Pace(self.sleep, lambda: jitter)


def fixed(circuits: Circuits) -> Router:
    """A router that keeps to the configured order."""
    estimator = Estimator(50.0, Target(1.0, 0.1))
    return Router(Fixed(), estimator, Sessions(60.0), circuits, clock_s=lambda: 0.0)


Verdict = Callable[[int], AgentspecError | None]


class Served:
    """A backend whose n-th call fails with ``verdict(n)``, n from 0; None: it answers.

    models: the upstream names that it was asked for. gate: an answer waits for it.
    """

    kind = "openai"

    def __init__(self, name: str, verdict: Verdict = lambda _: None):
        self.name = name
        self.verdict = verdict
        self.asked = 0
        self.models_asked: list[str] = []
        self.gate: asyncio.Event | None = None

    async def _answer(self, turn: Turn) -> None:
        number, self.asked = self.asked, self.asked + 1
        self.models_asked.append(turn.upstream_model)
        if self.gate is not None:
            await self.gate.wait()
        error = self.verdict(number)
        if error is not None:
            raise error

    async def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        await self._answer(turn)
        yield ChatChunk(id=self.name, created=0, model="m", choices=[])

    async def complete(self, turn: Turn) -> ChatResponse:
        await self._answer(turn)
        return ChatResponse(id=self.name, created=0, model="m", choices=[])

    async def models(self) -> list[ModelCard]:
        return []

    async def health(self) -> bool:
        return True

    async def aclose(self) -> None:
        return None
