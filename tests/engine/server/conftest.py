"""The engine's HTTP on a loopback port, with a scripted engine behind it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import openai
import pytest
import uvicorn

from agentspec.engine.server import EngineServer, create_engine_app
from agentspec.engine.service import EngineService
from agentspec.wire.access import Guard
from tests.engine.server.fakes import ScriptedEngine, service


@dataclass
class Served:
    engine: ScriptedEngine
    service: EngineService
    server: EngineServer
    url: str
    client: openai.AsyncOpenAI


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """``await serve(script, **service options)``: a running server, ended after the test."""
    running: list[tuple[Served, asyncio.Task]] = []

    async def start(script, **options) -> Served:
        engine = script if hasattr(script, "step") else ScriptedEngine(script)
        guard = options.pop("guard", None)
        served, task = await _start(engine, service(engine, **options), guard)
        running.append((served, task))
        return served

    yield start
    for served, task in running:
        await served.client.close()
        served.server.should_exit = True
        await task


async def _start(engine, behind: EngineService, guard: Guard | None) -> tuple[Served, asyncio.Task]:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(create_engine_app(behind, guard), log_level="critical", ws="none")
    server = EngineServer(config, behind)
    # serve() would take the process's signal handlers; its body does not.
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    return Served(engine, behind, server, url, client), task
