"""Halves of a surrogate pair that a server wrote into two events, put together.

A server that decodes token by token in UTF-16 may end one delta with ``\\ud83d`` and begin the next
with ``\\ude00``: neither is text, both are one character.
"""

from __future__ import annotations

import re

_SUSPECT = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:(?P<high>u[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|(?P<lone>u[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_REPLACEMENT = rb"\ufffd"


class SurrogateJoiner:
    """Mends the events of one stream. A half that ends a string is held until the other comes."""

    def __init__(self) -> None:
        self._half = b""

    def mend(self, data: bytes) -> bytes:
        """One event's JSON text, in which every surrogate has its other half: a half without one
        becomes U+FFFD, or nothing where it ended a string."""
        return _ESCAPE.sub(self._escape, data) if _SUSPECT.search(data) else data

    def _escape(self, found: re.Match[bytes]) -> bytes:
        whole = found.group()
        if found["lone"]:
            half, self._half = self._half, b""
            return half + whole if half else _REPLACEMENT
        if not found["high"] or found["low"]:
            return whole
        if found.string[found.end() : found.end() + 1] != b'"':
            return _REPLACEMENT
        self._half = whole
        return b""


def mended(text: str) -> str:
    """JSON text in which every half without its other half is U+FFFD: text that stands in a string
    of other JSON (a call's arguments) is looked at by nobody before it is decoded itself."""
    raw = text.encode("utf-8", "surrogatepass")
    if not _SUSPECT.search(raw):
        return text
    return _ESCAPE.sub(_whole_or_replaced, raw).decode("utf-8", "surrogatepass")


def _whole_or_replaced(found: re.Match[bytes]) -> bytes:
    half = found["lone"] or (found["high"] and not found["low"])
    return _REPLACEMENT if half else found.group()


def holds_half(data: bytes) -> bool:
    """Whether a string in JSON text holds a half without its other half: no decoder takes it."""
    if not _SUSPECT.search(data):
        return False
    return any(m["lone"] or (m["high"] and not m["low"]) for m in _ESCAPE.finditer(data))
