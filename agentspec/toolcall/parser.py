"""Generated text to tool calls, as it streams. Total: any text gives text, calls, or drops."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .format import ToolFormat
from .lexer import ObjectScanner


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call's name is known. Its arguments may still turn out torn."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is whole. ``arguments_text`` is the text of its arguments as the model wrote it."""

    index: int
    name: str
    arguments_text: str


@dataclass(frozen=True, slots=True)
class CallDropped:
    """A call that ended torn or malformed; it must not be passed on. ``name`` where known."""

    index: int
    name: str | None
    reason: str


_MAX_HEAD_SPACE = 16

Event = TextDelta | CallStart | CallEnd | CallDropped


class Parser:
    """Incremental: ``feed`` pieces in any cut, then ``finish``; events come once they are sure.

    Text that may be the beginning of the opening marker is held back; markers inside a call's
    strings are text of those strings. ``index`` counts the answer's calls, whatever the tool. A
    marker that no list or object follows is plain text. A call dropped keeps its index.
    """

    def __init__(self, fmt: ToolFormat):
        self._format = fmt
        self._state = self._text
        self._pending = ""
        self._index = 0
        self._scanner = ObjectScanner()
        self._name: str | None = None
        self._members_seen = 0
        self._events: list[Event] = []

    def feed(self, text: str) -> list[Event]:
        """The events that ``text`` completes."""
        text = self._pending + text
        self._pending = ""
        pos = 0
        while pos < len(text):
            moved = self._state(text, pos)
            if moved is None:
                self._pending = text[pos:]
                break
            pos = moved
        return self._take()

    def finish(self) -> list[Event]:
        """The text has ended: what was held back is text, an open call is dropped."""
        if self._state == self._text:
            self._emit_text(self._pending)
        elif self._state in (self._object, self._head):
            self._drop("torn")
        self._pending = ""
        self._state = self._text
        return self._take()

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # Each state reads from text[pos] and returns where it stopped, or None to wait for more text.

    def _text(self, text: str, pos: int) -> int | None:
        marker = self._format.open
        found = text.find(marker, pos)
        if found >= 0:
            self._emit_text(text[pos:found])
            self._state = self._head
            return found + len(marker)
        held = _held_back(text, pos, marker)
        self._emit_text(text[pos : len(text) - held])
        return None if held and pos == len(text) - held else len(text) - held

    def _head(self, text: str, pos: int) -> int | None:
        start = _skip_space(text, pos)
        rest = text[start:]
        opener = self._format.list_open
        if rest.startswith(opener) or rest.startswith("{"):
            self._state = self._slot
            return start + (len(opener) if rest.startswith(opener) else 0)
        if opener.startswith(rest) and start - pos <= _MAX_HEAD_SPACE:
            return None
        self._emit_text(self._format.open)
        self._state = self._text
        return pos

    def _slot(self, text: str, pos: int) -> int | None:
        pos = _skip_space(text, pos)
        if pos == len(text):
            return pos
        if text[pos] == "{":
            self._scanner, self._members_seen = ObjectScanner(), 0
            self._state = self._object
            return pos
        if text[pos] == ",":
            return pos + 1
        rest, ends = text[pos:], (self._format.close, self._format.list_close)
        if rest.startswith(ends[1]):
            return pos + len(ends[1])
        if rest.startswith(ends[0]):
            self._state = self._text
            return pos + len(ends[0])
        if any(end.startswith(rest) for end in ends):
            return None
        self._state = self._text
        return pos

    def _object(self, text: str, pos: int) -> int | None:
        pos = self._scanner.feed(text, pos)
        members = self._scanner.members
        if self._name is None and len(members) > self._members_seen:
            self._members_seen = len(members)
            self._name = self._find_name(members)
            if self._name is not None:
                self._events.append(CallStart(self._index, self._name))
        if self._scanner.done:
            self._end_call(members)
            self._state = self._slot
        return pos

    def _find_name(self, members: list[tuple[str, str]]) -> str | None:
        raw = _member(members, self._format.name_key)
        name = None if raw is None else _decoded(raw)
        return name if isinstance(name, str) and name else None

    def _end_call(self, members: list[tuple[str, str]]) -> None:
        if self._name is None:
            return self._drop("no name")
        raw = _member(members, self._format.arguments_key)
        arguments = {} if raw is None else _decoded(raw)
        if isinstance(arguments, str):
            raw, arguments = arguments, _decoded(arguments)
        if not isinstance(arguments, dict):
            return self._drop("arguments are not a JSON object")
        self._events.append(CallEnd(self._index, self._name, "{}" if raw is None else raw))
        self._index += 1
        self._name = None

    def _drop(self, reason: str) -> None:
        self._events.append(CallDropped(self._index, self._name, reason))
        self._index += 1
        self._name = None

    def _emit_text(self, text: str) -> None:
        if text:
            self._events.append(TextDelta(text))


def _held_back(text: str, pos: int, marker: str) -> int:
    """How many last characters of ``text[pos:]`` may be the beginning of ``marker``."""
    for size in range(min(len(marker) - 1, len(text) - pos), 0, -1):
        if text.endswith(marker[:size]):
            return size
    return 0


def _skip_space(text: str, pos: int) -> int:
    while pos < len(text) and text[pos] in " \t\r\n":
        pos += 1
    return pos


def _member(members: list[tuple[str, str]], key: str) -> str | None:
    return next((raw for name, raw in reversed(members) if _decoded(name) == key), None)


def _decoded(raw: str) -> Any:
    """Strictly decoded JSON, or None."""
    try:
        return json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
