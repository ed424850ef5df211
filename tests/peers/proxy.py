"""A proxy that breaks things on the wire: real bytes of a real server, refused, delayed or cut.

It relays one HTTP/1.1 request a connection and counts what reaches it and what reaches the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

NONE, STATUS, SLOW, CUT_BEFORE, CUT_AFTER_HEAD, CUT_AFTER_EVENT, CUT_NEAR_END = (
    "none",
    "status",
    "slow",
    "cut before the head",
    "cut after the head",
    "cut after some events",
    "cut before the end",
)


@dataclass
class Proxy:
    """fault: what happens to the requests that come. status: with which it is refused (STATUS);
    retry_after: what it then says. asked: generation requests that came; relayed: those that the
    server got; whole: answers that went back whole. left: a client broke a request off."""

    upstream: int
    fault: str = NONE
    status: int = 500
    retry_after: str | None = None
    asked: int = 0
    relayed: int = 0
    whole: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """From now on nobody listens on the port."""
        assert self._server is not None
        self._server.close()
        self._server = None

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._one(reader, writer)
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(found.group(1))) if found else b""
        generation = head.startswith(b"POST") and b"completions" in head.split(b"\r\n")[0]
        fault = self.fault if generation else NONE
        self.asked += generation
        if fault == STATUS:
            writer.write(self._refusal())
            await writer.drain()
            return
        if fault == CUT_BEFORE:
            writer.transport.abort()
            return
        if fault == SLOW:
            await reader.read()  # until its client gives up
            self.left.set()
            return
        self.relayed += generation
        await self._relay(head, body, reader, writer, fault, generation)

    def _refusal(self) -> bytes:
        body = json.dumps({"error": {"message": f"Broken on purpose ({self.status})."}}).encode()
        more = f"Retry-After: {self.retry_after}\r\n" if self.retry_after else ""
        head = (
            f"HTTP/1.1 {self.status} Broken\r\nContent-Type: application/json\r\n"
            f"{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body

    async def _relay(
        self,
        head: bytes,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        fault: str,
        generation: bool,
    ) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.upstream)
        lines = [x for x in head.split(b"\r\n") if not x.lower().startswith(b"connection:")]
        forth.write(b"\r\n".join([*lines[:-2], b"Connection: close", b"", b""]) + body)
        watch = asyncio.create_task(self._watch(reader, forth))
        sent = b""
        try:
            while piece := await back.read(4096):
                sent += piece
                if fault != NONE and (cut := _cut_at(sent, fault)) is not None:
                    writer.write(sent[:cut][len(sent) - len(piece) :])
                    await writer.drain()
                    writer.transport.abort()
                    return
                writer.write(piece)
                await writer.drain()
            self.whole += generation
        finally:
            watch.cancel()
            forth.close()

    async def _watch(self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter) -> None:
        """Tell the server at once when the client leaves."""
        await reader.read()
        self.left.set()
        forth.transport.abort()


def _cut_at(sent: bytes, fault: str) -> int | None:
    """Where the answer so far is to be cut; None: not yet."""
    end = sent.find(b"\r\n\r\n")
    if end < 0:
        return None
    body = sent[end + 4 :]
    if fault == CUT_AFTER_HEAD:
        return end + 4
    if fault == CUT_AFTER_EVENT:
        third = [m.end() for m in re.finditer(rb"\n\n", body)][2:3]
        return end + 4 + third[0] + 9 if third and len(body) > third[0] + 9 else None
    done = body.find(b"data: [DONE]")
    return end + 4 + done + 3 if done >= 0 else None


@contextlib.asynccontextmanager
async def proxied(upstream: int) -> AsyncIterator[Proxy]:
    """A proxy in front of a server on this machine."""
    proxy = Proxy(upstream)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.aclose()
