"""A gateway on loopback in the test's own loop, its ledger kept in a list."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx
import uvicorn
from fastapi import FastAPI

from agentspec.store.record import Note, OpenRecord, RequestRecord


@dataclass
class ListJournal:
    """A journal in memory. With ``broken`` set every write fails."""

    opened: list[OpenRecord] = field(default_factory=list)
    closed: list[RequestRecord] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    broken: bool = False

    def open(self, record: OpenRecord) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.opened.append(record)

    def close(self, record: RequestRecord, *notes: Note) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")
        self.notes += notes
        self.closed.append(record)

    @property
    def row(self) -> RequestRecord:
        """The only row there is."""
        assert len(self.closed) == 1
        return self.closed[0]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[str]:
    """Serve the application on a free port; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Server(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0)
        assert not task.done(), task
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@dataclass
class Gateway:
    """A running gateway: its address, an HTTP client for it, its ledger."""

    url: str
    http: httpx.AsyncClient
    journal: ListJournal

    async def chat(self, model: str, *, stream: bool = False, **more: object) -> httpx.Response:
        """One request, its answer read to the end."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        return await self.http.post(f"{self.url}/v1/chat/completions", json=body | more)
