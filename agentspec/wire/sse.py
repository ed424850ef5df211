"""Server-sent events: encode chunks, and cut an upstream's byte stream back into events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .chat import encode
from .errors import AgentspecError, UpstreamFailed, openai_body
from .surrogates import SurrogateJoiner

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n\n"
MAX_EVENT_BYTES = 8 * 1024 * 1024


def event(value: Any) -> bytes:
    """One ``data:`` event holding a value as JSON."""
    return b"data: " + encode(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """One event with its name in an ``event:`` line too, as Responses and Messages send them."""
    return b"event: " + name.encode() + b"\ndata: " + encode(value) + b"\n\n"


def error_event(error: AgentspecError) -> bytes:
    """The error chunk that ends a broken stream (no ``[DONE]`` follows it)."""
    return event(openai_body(error))


class EventParser:
    """Incremental SSE parser: feed bytes in any cut, get the data of each finished event.

    Comments and other fields are dropped, ``\\r\\n`` and several data lines are understood. Halves
    of a surrogate pair in two events are put together (``surrogates.py``).
    Raises ``UpstreamFailed`` when one event grows beyond ``MAX_EVENT_BYTES``.
    """

    def __init__(self) -> None:
        self._joiner = SurrogateJoiner()
        self._pending = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of every event that ``piece`` completes."""
        self._pending += piece
        if len(self._pending) + self._size > MAX_EVENT_BYTES:
            raise UpstreamFailed("The backend sent a stream event that is too large.")
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                if self._data:
                    yield self._joiner.mend(b"\n".join(self._data))
                self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two events (nothing would be lost by its end)."""
        return not self._pending and not self._data
