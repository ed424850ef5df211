"""One HTTP answer in the making: when headers go out, what keeps it alive, when the client leaves.

An answer is either JSON, sent at once, or an event stream. A stream's headers are sent with its
first event, or with the first keep-alive comment when that takes longer; until then an error is an
HTTP error, afterwards it is an error chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType

from starlette.types import Receive, Send

from agentspec.wire.chat import encode
from agentspec.wire.errors import AgentspecError
from agentspec.wire.spelling import Name
from agentspec.wire.sse import KEEPALIVE

from .body import ClientGone
from .surface import ErrorShape

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]


class Exchange:
    """One request's answer. Used as a context manager around the work that makes the answer.

    errors: how the client's protocol spells an error; last_words: the event that ends a broken
    stream, once the answer being written knows better than ``errors``. headers: of the answer,
    beside the usual ones. spelling: a chat request's fields as the client knows them.
    Inside, the client's leaving cancels the work (``gone`` is then True), which the context manager
    turns into ``ClientGone``; a stream that is silent for ``keepalive_s`` gets a comment.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        errors: ErrorShape,
        keepalive_s: float,
        tick_s: Callable[[], float],
    ):
        self._errors = errors
        self._receive = receive
        self._send = send
        self._keepalive_s = keepalive_s
        self._tick_s = tick_s
        self._lock = asyncio.Lock()
        self._streaming = False
        self._ending = False
        self._last_sent_s = 0.0
        self._watcher: asyncio.Task[None] | None = None
        self.started = False
        self.gone = False
        self.request_id = ""
        self.headers: dict[str, str] = {}
        self.spelling: Callable[[], Iterable[Name]] = tuple
        self.last_words: Callable[[AgentspecError], bytes] = self._event

    async def __aenter__(self) -> Exchange:
        worker = asyncio.current_task()
        assert worker is not None
        self._watcher = asyncio.create_task(self._watch(worker))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._watcher is not None
        self._watcher.cancel()
        if self.gone and kind is asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            raise ClientGone from None

    def expect_stream(self) -> None:
        """The answer will be a stream: keep-alive comments may start."""
        self._streaming = True
        self._last_sent_s = self._tick_s()

    async def send_json(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """The whole answer."""
        assert not self.started
        self._ending = self.started = True
        raw = _raw(self.headers | headers)
        length = (b"content-length", str(len(body)).encode())
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [_JSON, length, *self._id_header(), *raw],
            }
        )
        await self._send({"type": "http.response.body", "body": body})

    async def send_events(self, events: bytes, *, last: bool = False) -> None:
        """One or more whole events; ``last`` ends the stream."""
        async with self._lock:
            self._ending = self._ending or last
            await self._write(events, last)

    def status_of(self, error: AgentspecError) -> int:
        """The HTTP status that the client sees if ``fail`` is called now: a stream's is out."""
        return 200 if self.started else self._errors.status(error)

    async def fail(self, error: AgentspecError) -> None:
        """End the answer with an error: HTTP before the first byte, an error chunk after it."""
        if self.started:
            await self.send_events(self.last_words(error), last=True)
            return
        headers = error.headers
        self._streaming = False
        async with self._lock:
            if not self.started:
                body = encode(self._errors.body(error, self.request_id))
                await self.send_json(self._errors.status(error), body, headers)
                return
        await self.send_events(self.last_words(error), last=True)

    def _event(self, error: AgentspecError) -> bytes:
        return self._errors.event(error, self.request_id)

    async def _write(self, events: bytes, last: bool) -> None:
        if not self.started:
            self.started = True
            await self._send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [*_STREAM, *self._id_header(), *_raw(self.headers)],
                }
            )
        self._last_sent_s = self._tick_s()
        await self._send({"type": "http.response.body", "body": events, "more_body": not last})

    def _id_header(self) -> list[tuple[bytes, bytes]]:
        if not self.request_id:
            return []
        return [(self._errors.id_header, self.request_id.encode())]

    async def _watch(self, worker: asyncio.Task[object]) -> None:
        """Beat while a stream is silent; cancel the worker when the client has gone."""
        while True:
            try:
                async with asyncio.timeout(self._until_beat_s()):
                    message = await self._receive()
            except TimeoutError:
                await self._beat()
                continue
            if message["type"] == "http.disconnect":
                break
        if not self._ending:
            self.gone = True
            worker.cancel()

    def _until_beat_s(self) -> float:
        """Seconds until a beat may be due. Before it is known to be a stream: ask again then."""
        if not self._streaming:
            return self._keepalive_s
        return max(self._last_sent_s + self._keepalive_s - self._tick_s(), 0.001)

    async def _beat(self) -> None:
        if not self._streaming or self._ending or self._lock.locked():
            return
        if self._tick_s() - self._last_sent_s < self._keepalive_s:
            return
        async with self._lock:
            await self._write(KEEPALIVE, last=False)
