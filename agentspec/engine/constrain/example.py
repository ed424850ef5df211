"""A short text that a pattern or a format accepts: where the close-out guard heads for.

Only a hint: what it yields is tried against the grammar, never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentspec.toolcall.pattern import check_pattern, compiled

_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "duration": "P1D",
    "email": "a@a.aa",
    "hostname": "a",
    "ipv4": "0.0.0.0",
    "ipv6": "0:0:0:0:0:0:0:0",
    "time": "00:00:00Z",
    "uri": "a:a",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
_CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a", "n": "\n", "t": "\t"}
_TOKEN = re.compile(
    r"(?P<escape>\\(?:p\{\w+\}|.))|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?:|\?P?<\w+>)?)"
    r"|(?P<count>\{\d+(?:,\d*)?\}\??)|(?P<repeat>[*+?]\??)|(?P<other>.)",
    re.DOTALL,
)
_MAX_CHARS = 80
_MAX_PATTERN_CHARS = 2000
"""What is no pattern at all (a text in an annotation) may take time with the square of it."""


def examples(schema: Any) -> Iterator[str]:
    """One example for every pattern and format in a schema, where one can be made."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        if not isinstance(node, dict):
            continue
        pattern, name = node.get("pattern"), node.get("format")
        if isinstance(pattern, str) and (made := example(pattern)):
            yield made
        if isinstance(name, str) and name in _FORMATS:
            yield _FORMATS[name]
        stack.extend(value for key, value in node.items() if key not in ("enum", "const"))


def example(pattern: str) -> str | None:
    """A short text that ``pattern`` matches (first alternatives, least repeats), or None."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return None
    groups: list[list[str]] = [[]]
    closed = [False]
    """Whether the group's first alternative has ended."""
    for found in _TOKEN.finditer(pattern):
        kind, text = found.lastgroup, found.group()
        if kind == "open":
            groups.append([])
            closed.append(False)
        elif text == ")" and len(groups) > 1:
            inner = "".join(groups.pop())
            closed.pop()
            _add(groups, closed, inner)
        elif text == "|":
            closed[-1] = True
        elif kind in ("count", "repeat"):
            _repeat(groups[-1], text)
        elif text not in ("^", "$"):
            _add(groups, closed, _one(text))
    made = "".join(groups[0])
    fits = len(made) <= _MAX_CHARS and check_pattern(pattern) is None
    return made if fits and compiled(pattern).search(made) else None


def _add(groups: list[list[str]], closed: list[bool], text: str) -> None:
    if not closed[-1]:
        groups[-1].append(text)


def _repeat(atoms: list[str], quantifier: str) -> None:
    if not atoms:
        return
    if quantifier[0] == "{":
        low = int(re.match(r"\{(\d+)", quantifier).group(1))  # type: ignore[union-attr]
        atoms[-1] *= min(low, _MAX_CHARS)
    elif quantifier[0] in "*?":
        atoms[-1] = ""


def _one(text: str) -> str:
    """One character that an atom of a pattern matches."""
    if text[0] == "\\":
        letter = text[1]
        return "a" if letter in "pP" else "" if letter in "bB" else _CLASSES.get(letter, letter)
    if text == ".":
        return "a"
    if text[0] != "[" or len(text) < 3:
        return text
    if check_pattern(text) is not None:
        return text[1]
    search = compiled(text).search
    listed = text[1:-1].replace("\\", "")
    return next((c for c in (*listed, *"a0A _-./") if search(c) and c not in '"\\'), listed[:1])
