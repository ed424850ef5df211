"""Mutations of JSON values, of bytes, and of how bytes are cut; all from one seeded generator."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        2**63,
        -(2**63),
        1e308,
        "",
        " ",
        "\x00",
        "é👋",
        "</tool_call>",
    ),
    *("x" * 300, "a__b", [], {}, [[]], [None], {"type": None}, {"type": "text"}, {"": {}}),
    *("function", "message", "tool_use", "item_reference", "input_image", {"$ref": "#"}),
]


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in entries:
        found.append((value, key))
        if isinstance(inner, dict | list):
            _places(inner, found)
    return found


def mutated(rng: random.Random, seed: dict[str, Any]) -> dict[str, Any]:
    """A copy of the seed with one to four places changed, dropped, doubled or exchanged."""
    value = copy.deepcopy(seed)
    for _ in range(rng.randint(1, 4)):
        places = _places(value, [])
        if not places:
            return value
        holder, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, place = rng.choice(places)
            holder[key] = copy.deepcopy(other[place])
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind == 3:
            for _ in range(rng.choice((1, 3, 40))):
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"input": holder[key]}
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    return value


def damaged(rng: random.Random, raw: bytes) -> bytes:
    """Bytes with a few of them changed, dropped or inserted, or cut off."""
    made = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(made) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(made):
            made[at] = rng.randrange(256)
        elif kind == 1:
            del made[at : at + rng.randint(1, 9)]
        elif kind == 2:
            made[at:at] = rng.choice(
                (b'"', b"\\", b"{", b"[", b"\xff", b"\n", b"\\ud800", b"[" * 2000)
            )
        elif rng.random() < 0.2:
            del made[at:]
    return bytes(made)


def cut(rng: random.Random, raw: bytes) -> list[bytes]:
    """The same bytes in pieces."""
    borders = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randint(0, 12)))
    return [raw[a:b] for a, b in zip([0, *borders], [*borders, len(raw)], strict=True)]


def text(rng: random.Random, longest: int = 12) -> str:
    letters = 'ab {}[]":,\\\n\t<>/éß漢👋\x00\u2028'
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, longest)))


def value(rng: random.Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = rng.randrange(7 if depth else 5)
    if kind == 5:
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    if kind == 6:
        return {text(rng, 4): value(rng, depth - 1) for _ in range(rng.randint(0, 3))}
    return (None, rng.random() < 0.5, rng.randint(-(2**53), 2**53), rng.random(), text(rng))[kind]
