"""How deep a body's objects and lists may lie in each other: one bound for every surface.

What is decoded is copied, searched and encoded again by functions that call themselves; a body
beyond the bound is refused before any of them sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from .errors import InvalidRequest

MAX_NESTING = 128
"""Levels, the body's own object being the first. Tool schemas have a bound of their own, below."""

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level down, up
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[\[\]{},]', re.DOTALL)


def check_nesting(body: bytes) -> None:
    """Raise ``InvalidRequest`` naming the field that goes deeper than ``MAX_NESTING``.

    Says nothing of whether the body is JSON otherwise.
    """
    if nested_too_deeply(body):
        raise too_deep(_place(body))


def nested_too_deeply(body: bytes) -> bool:
    """Whether JSON text goes deeper than ``MAX_NESTING``."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    # Without escapes first: a quote that stays is the end of a string, or its beginning.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STEPS, _OTHERS)
    outside = b"".join(plain.split(b'"')[::2])
    depths = accumulate(memoryview(outside).cast("b"))
    return any(map(MAX_NESTING.__lt__, depths))


def depth_of(value: Any) -> int:
    """Levels of objects and lists in a decoded JSON value."""
    level, depth = [value], 0
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        depth += 1
        level = [
            one for inner in level for one in (inner.values() if isinstance(inner, dict) else inner)
        ]
    return depth


def too_deep(where: str) -> InvalidRequest:
    """The refusal of the field at that path of a body ("": of the whole body)."""
    named = f"Invalid value for '{where}'" if where else "The request body cannot be read"
    return InvalidRequest(
        f"{named}: it is nested too deeply.",
        param=where or None,
        code="invalid_value",
    )


def _place(body: bytes) -> str:
    """The field where the bound is passed: ``metadata``, ``tools[3].parameters``."""
    return "".join(_path(body)).lstrip(".")


def _path(body: bytes) -> Iterator[str]:
    steps = next((steps for steps, _ in _walk(body) if len(steps) > MAX_NESTING), [])
    for index, step in enumerate(steps[:3]):
        if index == 1 and isinstance(step, str):
            break
        yield f"[{step}]" if isinstance(step, int) else f".{step}"


def first_text(body: bytes, name: str) -> str:
    """The text of a field of a body that is too deep to be decoded; "" where it has none."""
    for steps, token in _walk(body):
        if steps == [name] and token.group(1) is not None and not token.group(2):
            return token.group(1).decode(errors="replace")
    return ""


def _walk(body: bytes) -> Iterator[tuple[list[str | int], re.Match[bytes]]]:
    """(keys and indexes from the root, token) for each bracket, comma and string."""
    steps: list[str | int] = []
    for token in _TOKEN.finditer(body):
        mark = token.group()
        if mark in (b"{", b"["):
            steps.append("" if mark == b"{" else 0)
        elif mark in (b"}", b"]"):
            if steps:
                steps.pop()
        elif mark == b",":
            if steps and isinstance(steps[-1], int):
                steps[-1] += 1
        elif token.group(2) and steps:
            steps[-1] = token.group(1).decode(errors="replace")[:64]
        yield steps, token
