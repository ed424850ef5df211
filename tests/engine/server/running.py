"""A real engine behind HTTP in the test's own event loop, and a small client for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn

from agentspec.engine.core import Engine
from agentspec.engine.server import create_engine_app
from agentspec.engine.service import EngineService

HI: Any = [{"role": "user", "content": "the thing in the end"}]


class Server:
    """A running server; ``engine`` is behind it."""

    def __init__(self, service: EngineService, url: str, model: str):
        self.service = service
        self.url = url
        self.model = model
        engine = service.loop._engine
        assert isinstance(engine, Engine)
        self.engine = engine

    async def ask(self, **fields: Any) -> dict[str, Any]:
        body = {"model": self.model, "messages": HI} | fields
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/v1/chat/completions", json=body) as answer,
        ):
            whole = await answer.json()
            assert answer.status == 200, whole
            return whole

    async def text(self, **fields: Any) -> str:
        return (await self.ask(**fields))["choices"][0]["message"]["content"]

    async def stream(self, **fields: Any) -> dict[str, Any]:
        """A stream's chunks put together as one choice, and its usage chunk."""
        body = {"model": self.model, "messages": HI, "stream": True, "agentspec": {}} | fields
        choice: dict[str, Any] = {"content": "", "pieces": [], "calls": [], "finish_reason": None}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/v1/chat/completions", json=body) as answer,
        ):
            *events, done, rest = (await answer.text()).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        for event in events:
            chunk = json.loads(event.removeprefix("data: "))
            for part in chunk["choices"]:
                choice["pieces"].append(part["delta"].get("content") or "")
                for call in part["delta"].get("tool_calls", []):
                    if "id" in call:
                        choice["calls"].append(call["function"]["name"])
                    else:
                        choice["calls"].append(call["function"]["arguments"])
                choice["finish_reason"] = part["finish_reason"]
            choice["usage"] = chunk.get("usage")
        choice["content"] = "".join(choice["pieces"])
        return choice


@asynccontextmanager
async def serving(service: EngineService, model: str) -> AsyncIterator[Server]:
    """Serve on a free loopback port until the block ends."""
    config = uvicorn.Config(create_engine_app(service), port=0, log_level="critical", ws="none")
    http = uvicorn.Server(config)
    task = asyncio.create_task(http._serve())
    while not http.started:
        await asyncio.sleep(0.01)
    port = http.servers[0].sockets[0].getsockname()[1]
    yield Server(service, f"http://127.0.0.1:{port}", model)
    http.should_exit = True
    await task
