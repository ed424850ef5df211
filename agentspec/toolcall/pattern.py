"""JSON Schema patterns on a linear-time regex engine (google-re2).

JSON Schema speaks ECMA-262: ``pattern`` searches anywhere, ``$`` is the very end, ``\\d`` and
``\\w`` are ASCII. RE2 agrees on all of that; the few spellings it lacks are rewritten here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from .lookaround import split

_UNICODE = re.compile(r"\\(?:\\|u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|c([A-Za-z])|/)")
_LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])")
_BACK_REFERENCE = re.compile(r"(?:^|[^\\])(?:\\\\)*\\[1-9]")


def to_re2(pattern: str) -> str:
    """An ECMA-262 pattern in RE2's spelling."""

    def spell(found: re.Match[str]) -> str:
        code = found.group(1) or found.group(2)
        if code:
            return rf"\x{{{code}}}"
        if letter := found.group(3):
            return rf"\x{{{ord(letter) % 32:x}}}"
        return "/" if found.group() == r"\/" else found.group()

    return _UNICODE.sub(spell, pattern).replace("[^]", r"[\x00-\x{10FFFF}]")


@dataclass(frozen=True, slots=True)
class Together:
    """Patterns that hold together: all of ``found`` are found, none of ``absent`` is."""

    found: tuple[Any, ...]
    absent: tuple[Any, ...]

    def search(self, text: str) -> bool:
        return all(part.search(text) for part in self.found) and not any(
            part.search(text) for part in self.absent
        )


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """The compiled pattern; ``.search(text)`` runs in linear time. Raises ``re2.error``."""
    parts = split(pattern)
    if parts is None or not (parts.found or parts.absent):
        return _plain(pattern)
    found = tuple(map(_plain, (parts.plain, *parts.found)))
    return Together(found, tuple(map(_plain, parts.absent)))


def plain_part(pattern: str) -> tuple[str, bool]:
    """(the pattern without its look-around, whether that was all of it): for masks."""
    parts = split(pattern)
    assert parts is not None, "check_pattern lets no other look-around pass"
    return parts.plain, not (parts.found or parts.absent)


def _plain(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 24
    return re2.compile(to_re2(pattern), options)


def check_pattern(pattern: str) -> str | None:
    """Why a pattern cannot be used (to follow "PATTERN "), or None when it can."""
    if "\0" in pattern:
        return "holds a NUL character"
    try:
        compiled(pattern)
    except re2.error as error:
        if _LOOK_AROUND.search(pattern):
            return (
                "uses look-around where it is not supported (look-ahead right behind a leading "
                "'^' and look-behind right before an ending '$' are)"
            )
        if _BACK_REFERENCE.search(pattern):
            return "uses a back reference, which is not supported"
        reason = error.args[0] if error.args else "unknown error"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return f"is not a regular expression that can be used: {reason}"
    return None
