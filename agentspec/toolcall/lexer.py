"""Incremental cutting of one JSON object's text into its members; nothing is read twice."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN_STRING = re.compile(r'[^"\\]*')
_PLAIN = re.compile(r'[^"{}\[\],:]*')


class ObjectScanner:
    """Feed text that begins at an object's ``{``; collects (raw key, raw value) of its members.

    Brackets and strings are followed, nothing else is judged: raw texts are decoded, and refused,
    by the caller. ``members`` grows as members are completed; ``done`` once the object has closed.
    """

    __slots__ = ("members", "done", "_closers", "_in_string", "_escaped", "_piece", "_key")

    def __init__(self) -> None:
        self.members: list[tuple[str, str]] = []
        self.done = False
        self._closers: list[str] = []
        self._in_string = False
        self._escaped = False
        self._piece: list[str] = []
        self._key: str | None = None

    @property
    def key(self) -> str | None:
        """The raw key of the member whose value is being read."""
        return self._key

    def feed(self, text: str, pos: int) -> int:
        """Read from ``text[pos]`` on; returns where it stopped."""
        while pos < len(text) and not self.done:
            if self._escaped:
                self._piece.append(text[pos])
                self._escaped, pos = False, pos + 1
                continue
            plain = (_PLAIN_STRING if self._in_string else _PLAIN).match(text, pos)
            assert plain is not None
            if plain.end() > pos:
                self._piece.append(plain.group())
                pos = plain.end()
                continue
            self._structure(text[pos])
            pos += 1
        return pos

    def _structure(self, char: str) -> None:
        if self._in_string:
            self._escaped = char == "\\"
            self._in_string = char != '"'
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._closers.append("}" if char == "{" else "]")
            if len(self._closers) == 1:
                return
        elif char in "}]":
            self._closers.pop()
            if not self._closers:
                self._end_member()
                self.done = True
                return
        elif len(self._closers) == 1:
            if char == ",":
                self._end_member()
                return
            if char == ":" and self._key is None:
                self._key = self._take()
                return
        self._piece.append(char)

    def _take(self) -> str:
        text = "".join(self._piece).strip()
        self._piece.clear()
        return text

    def _end_member(self) -> None:
        value = self._take()
        if self._key is not None:
            self.members.append((self._key, value))
        self._key = None


def member(members: list[tuple[str, str]], key: str) -> str | None:
    """The raw value of the last member of that name."""
    return next((raw for name, raw in reversed(members) if decoded(name) == key), None)


def decoded(raw: str) -> Any:
    """Strictly decoded JSON, or None."""
    try:
        return json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
