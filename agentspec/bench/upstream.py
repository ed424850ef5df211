"""A stand-in for a model server: answers chat completions from a script, as fast as Python can.

It is no engine and its figures are no engine's: ``bench gateway`` measures what lies between a
client and it. Run as a process of its own: ``python -m agentspec.bench.upstream --port N``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast

import httptools
import msgspec

MODEL = "stand-in"
_WORDS = ["the", "gateway", "passes", "on", "each", "word", "of", "this", "answer", "unchanged"]


@dataclass(frozen=True, slots=True)
class Script:
    """delay_s: before the first byte; chunk_s: between chunks; chunks: content chunks a stream."""

    delay_s: float = 0.02
    chunk_s: float = 0.02
    chunks: int = 10

    @property
    def pieces(self) -> list[str]:
        return [f"{_WORDS[i % len(_WORDS)]} " for i in range(self.chunks)]


class _Ask(msgspec.Struct):
    stream: bool = False
    stream_options: dict[str, Any] | None = None


def _usage(script: Script) -> dict[str, int]:
    return {
        "prompt_tokens": 1000,
        "completion_tokens": script.chunks,
        "total_tokens": 1000 + script.chunks,
    }


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def whole_answer(script: Script) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(script.pieces)},
        "finish_reason": "stop",
    }
    return _dump(
        {
            "id": "chatcmpl-standin",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
            "usage": _usage(script),
        }
    )


def _event(choices: list[dict[str, Any]], **more: Any) -> bytes:
    body = {
        "id": "chatcmpl-standin",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "choices": choices,
        **more,
    }
    return b"data: " + _dump(body) + b"\n\n"


def stream_events(script: Script, usage: bool) -> list[bytes]:
    """The server-sent events of one stream: role first, then text, usage (when asked), the end."""
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in script.pieces]
    deltas[0]["role"] = "assistant"
    events = [_event([{"index": 0, "delta": d, "finish_reason": None}]) for d in deltas]
    tail = _event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if usage:
        tail += _event([], usage=_usage(script))
    return [*events, tail + b"data: [DONE]\n\n"]


def _http(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass(slots=True)
class Counts:
    """What a whole stand-in has done. peak: most requests at once since it was last asked."""

    served: int = 0
    running: int = 0
    peak: int = 0

    def begin(self) -> None:
        self.running += 1
        self.peak = max(self.peak, self.running)

    def end(self) -> None:
        self.running -= 1
        self.served += 1

    def told(self) -> bytes:
        told = _http(_dump({"served": self.served, "peak": self.peak}))
        self.peak = self.running
        return told


class Upstream(asyncio.Protocol):
    """One connection; requests on it come one after the other. ``GET /counts`` tells counts."""

    transport: asyncio.Transport

    def __init__(self, script: Script, counts: Counts | None = None):
        self._script = script
        self._counts = counts or Counts()
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._whole = _http(whole_answer(script))
        self._models = _http(_dump({"object": "list", "data": [{"id": MODEL, "object": "model"}]}))
        self._url = b""
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's does not subclass it

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url
        self._body.clear()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if not self._body:
            self.transport.write(self._counts.told() if self._url == b"/counts" else self._models)
            return
        self._counts.begin()
        ask = msgspec.json.decode(self._body, type=_Ask)
        delay_s = self._script.delay_s
        if ask.stream:
            usage = bool((ask.stream_options or {}).get("include_usage"))
            events = stream_events(self._script, usage)
            self._loop.call_later(delay_s, self._stream, events, 0)
        else:
            self._loop.call_later(delay_s, self._last, self._whole)

    def _last(self, data: bytes) -> None:
        self._counts.end()
        self._send(data)

    def _send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def _stream(self, events: list[bytes], index: int) -> None:
        data = _chunk(events[index])
        if index == 0:
            head = (
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
            )
            data = head.encode() + b"\r\n\r\n" + data
        if index + 1 == len(events):
            self._last(data + b"0\r\n\r\n")
            return
        self._send(data)
        self._loop.call_later(self._script.chunk_s, self._stream, events, index + 1)


async def serve(port: int, script: Script) -> None:
    """Serve on loopback until cancelled."""
    loop = asyncio.get_running_loop()
    counts = Counts()
    server = await loop.create_server(lambda: Upstream(script, counts), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--chunk-ms", type=float, default=20.0)
    parser.add_argument("--chunks", type=int, default=10)
    args = parser.parse_args()
    script = Script(args.delay_ms / 1000, args.chunk_ms / 1000, args.chunks)
    import uvloop

    uvloop.run(serve(args.port, script))


if __name__ == "__main__":
    main()
