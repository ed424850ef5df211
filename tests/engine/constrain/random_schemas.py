"""Random schemas with the keywords that masks do not hold, and walks through them as engines go."""

from __future__ import annotations

import random
from typing import Any

from .conftest import EOS, Small

_NAMES = ["a", "b", "kind", "x y"]
_VALUES: list[Any] = [0, 1, 2, 7, "a", "b", "alpha", None, True, [], {}, 1.5]
_PATTERNS = ["^a", "b$", "^(?!a)[a-c]+$", "^[ab]{1,3}$", "[0-9]"]


def random_schema(pick: random.Random, depth: int = 2) -> Any:
    """One schema: a base of some type, and up to two of the harder keywords beside it."""
    schema = _base(pick, depth)
    for _ in range(pick.choice((0, 1, 1, 2))):
        schema.update(_harder(pick, depth))
    return schema


def _base(pick: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["integer", "number", "string", "boolean", "enum"]
    kind = pick.choice(kinds if depth == 0 else [*kinds, "object", "object", "array", "array"])
    if kind == "enum":
        return {"enum": pick.sample(_VALUES, pick.randint(1, 4))}
    if kind == "object":
        names = pick.sample(_NAMES, pick.randint(0, 3))
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: random_schema(pick, depth - 1) for name in names},
            "required": [name for name in names if pick.random() < 0.5],
        }
        if pick.random() < 0.4:
            schema["additionalProperties"] = pick.choice([False, {"type": "integer"}])
        return schema
    if kind == "array":
        low = pick.randint(0, 2)
        return {
            "type": "array",
            "items": random_schema(pick, depth - 1),
            "minItems": low,
            "maxItems": low + pick.randint(0, 3),
        }
    return {"type": kind}


def _harder(pick: random.Random, depth: int) -> dict[str, Any]:
    def sub() -> Any:
        return random_schema(pick, 0 if depth == 0 else depth - 1)

    name, other = pick.sample(_NAMES, 2)
    return pick.choice(
        [
            lambda: {"not": {"const": pick.choice(_VALUES)}},
            lambda: {"not": {"required": [name]}},
            lambda: {"oneOf": [sub(), sub()]},
            lambda: {"anyOf": [sub(), sub()]},
            lambda: {"allOf": [sub()]},
            lambda: {"if": sub(), "then": sub(), "else": sub()},
            lambda: {"if": {"required": [name]}, "then": {"required": [other]}},
            lambda: {"uniqueItems": True},
            lambda: {"contains": sub(), "minContains": pick.randint(0, 2)},
            lambda: {"dependentRequired": {name: [other]}},
            lambda: {"dependentSchemas": {name: {"properties": {other: sub()}}}},
            lambda: {"propertyNames": {"pattern": pick.choice(_PATTERNS), "maxLength": 3}},
            lambda: {"unevaluatedProperties": pick.choice([False, {"type": "integer"}])},
            lambda: {"pattern": pick.choice(_PATTERNS)},
            lambda: {"minProperties": pick.randint(0, 2)},
            lambda: {"multipleOf": pick.choice([2, 0.5])},
        ]
    )()


def walked(small: Small, session: Any, pick: random.Random, steps: int) -> tuple[str | None, int]:
    """(the text of a random legal walk, closed at its end; how often it was decoded again).

    None where it cannot be closed.
    """
    out: list[int] = []
    again = 0
    for _ in range(steps):
        allowed = small.allowed(session)
        if session.must_stop or (session.may_stop and pick.random() < 0.2):
            break
        choices = sorted(allowed - {EOS})
        assert not choices or (EOS in allowed) == session.may_stop, small.decode(out)
        if not choices:
            break
        token = pick.choice(choices)
        session.accept([token])
        if session.viable():
            out.append(token)
            continue
        session.rollback(1)
        session.ban(token)
        assert not session.allows(token) and token not in small.allowed(session)
        again += 1
    closing = session.closing(10_000)
    if closing is None:
        return None, again
    session.accept(closing)
    assert session.may_stop
    return small.decode(out + closing).decode(), again
