"""Server-sent events: encode chunks, and cut an upstream's byte stream back into events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .chat import encode
from .errors import AgentspecError, UpstreamFailed, openai_body
from .surrogates import SurrogateJoiner

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n\n"
MAX_EVENT_BYTES = 8 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


def event(value: Any) -> bytes:
    """One ``data:`` event holding a value as JSON."""
    return b"data: " + encode(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """One event with its name in an ``event:`` line too, as Responses and Messages send them."""
    return b"event: " + name.encode() + b"\ndata: " + encode(value) + b"\n\n"


def passed_event(name: str, data: bytes) -> bytes:
    """A server's event as it was sent, its data in as many lines. Nothing where what it calls
    itself is no name: a line break in it would begin another event."""
    if not _NAME.fullmatch(name):
        return b""
    lines = b"\n".join(b"data: " + line for line in _LINE_END.split(data))
    return b"event: " + name.encode() + b"\n" + lines + b"\n\n"


def error_event(error: AgentspecError) -> bytes:
    """The error chunk that ends a broken stream (no ``[DONE]`` follows it)."""
    return event(openai_body(error))


class EventParser:
    """Incremental SSE parser: feed bytes in any cut, get the data of each finished event.

    Comments and other fields are dropped; every kind of line end, several data lines and a byte
    order mark are understood. Halves of a surrogate pair in two events are put together
    (``surrogates.py``).
    Raises ``UpstreamFailed`` when one event grows beyond ``MAX_EVENT_BYTES``.
    """

    def __init__(self) -> None:
        self._joiner = SurrogateJoiner()
        self._pending = b""
        self._data: list[bytes] = []
        self._size = 0
        self._begun = False
        self._after_return = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of every event that ``piece`` completes."""
        self._pending += piece
        if len(self._pending) + self._size > MAX_EVENT_BYTES:
            raise UpstreamFailed("The backend sent a stream event that is too large.")
        for line in self._lines():
            if not line:
                if self._data:
                    yield self._joiner.mend(b"\n".join(self._data))
                self._data, self._size = [], 0
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)

    def _lines(self) -> list[bytes]:
        """The lines that are whole by now."""
        if not self._begun and len(self._pending) >= len(BOM):
            self._begun = True
            self._pending = self._pending.removeprefix(BOM)
        if self._after_return and self._pending:
            self._after_return = False
            self._pending = self._pending.removeprefix(b"\n")
        if b"\r" not in self._pending:
            *lines, self._pending = self._pending.split(b"\n")
            return lines
        self._after_return = self._pending.endswith(b"\r")
        *lines, self._pending = _LINE_END.split(self._pending)
        return lines

    @property
    def idle(self) -> bool:
        """Whether the stream stands between two events (nothing would be lost by its end)."""
        return not self._pending and not self._data
