"""A closed-loop load client: fixed connections, each sends its next request when one is answered.

Written on the protocol itself, because a full HTTP client costs as much as the gateway it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import cast

import httptools


@dataclass(slots=True)
class Sample:
    """One exchange. first_ms: to the first byte of the body; total_ms: to its end.

    events: server-sent events that carry data; body: everything received.
    """

    body_index: int
    status: int = 0
    first_ms: float = 0.0
    total_ms: float = 0.0
    body: bytes = b""
    error: str | None = None

    @property
    def events(self) -> list[bytes]:
        return [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]


class Connection(asyncio.Protocol):
    """One persistent connection; ``exchange`` is called again only after it returned."""

    transport: asyncio.Transport | None = None

    def __init__(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[None] | None = None
        self._body = bytearray()
        self._first_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not subclass it

    def data_received(self, data: bytes) -> None:
        if self._parser is not None:
            self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        if not self._body:
            self._first_s = time.perf_counter()
        self._body += body

    def on_message_complete(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def exchange(self, request: bytes, sample: Sample) -> Sample:
        """Send one request, fill ``sample``. A broken connection stands in ``sample.error``."""
        assert self.transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        start_s = self._first_s = time.perf_counter()
        self.transport.write(request)
        try:
            await asyncio.wait_for(self._done, 60)
            sample.status = self._parser.get_status_code()
        except (ConnectionError, TimeoutError) as error:
            sample.error = str(error) or "no answer within 60 s"
        sample.total_ms = (time.perf_counter() - start_s) * 1000
        sample.first_ms = (self._first_s - start_s) * 1000
        sample.body = bytes(self._body)
        return sample


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send: loopback port and the model's name there."""

    name: str
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, body: bytes) -> bytes:
        lines = [
            "POST /v1/chat/completions HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _worker(target: Target, bodies: Seq[bytes], turns: Iterator[int]) -> list[Sample]:
    loop = asyncio.get_running_loop()
    requests = [target.request(body) for body in bodies]
    samples: list[Sample] = []
    connection: Connection | None = None
    for turn in turns:
        if connection is None or connection.transport is None:
            _, connection = await loop.create_connection(Connection, "127.0.0.1", target.port)
        index = turn % len(bodies)
        samples.append(await connection.exchange(requests[index], Sample(index)))
    if connection is not None and connection.transport is not None:
        connection.transport.close()
    return samples


async def closed_loop(
    target: Target, bodies: Seq[bytes], concurrency: int, count: int
) -> tuple[list[Sample], float]:
    """``count`` exchanges over ``concurrency`` connections: samples, and the seconds it took."""
    turns = iter(range(count))
    start_s = time.perf_counter()
    parts = await asyncio.gather(*(_worker(target, bodies, turns) for _ in range(concurrency)))
    return [sample for part in parts for sample in part], time.perf_counter() - start_s
