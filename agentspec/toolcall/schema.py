"""Is a JSON schema one that can be understood at all? Structure and limits, before any engine.

What a constraint engine cannot express is no error here: that is checked on the finished value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from agentspec.wire.errors import InvalidRequest, InvalidSchema

from .dialect import base_of, metaschema_error
from .pattern import check_pattern
from .refs import resolve

MAX_SCHEMA_CHARS = 1_000_000
MAX_DEPTH = 48
MAX_NODES = 20_000
MAX_ENUM_VALUES = 10_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLES = frozenset(
    {
        "additionalProperties",
        "additionalItems",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_COUNTS = frozenset(
    {
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
    }
)
EXCLUSIVE = frozenset({"exclusiveMaximum", "exclusiveMinimum"})
_NUMBERS = EXCLUSIVE | {"maximum", "minimum", "multipleOf"}
_STRINGS = frozenset({"$ref", "$id", "$anchor", "$schema", "format", "pattern", "$dynamicRef"})


def check_name(name: str, param: str) -> None:
    """Raise ``InvalidRequest`` unless a name is 1 to 64 of letters, digits, ``_``, ``-``, ``.``."""
    if _NAME.fullmatch(name):
        return
    raise InvalidRequest(
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the "
        "pattern '^[a-zA-Z0-9_.-]{1,64}$'.",
        param=param,
        code="invalid_value",
    )


def validate_schema(
    schema: Any, param: str, what: str, *, code: str | None = None, object_root: bool = False
) -> None:
    """Raise ``InvalidSchema`` (OpenAI's wording, ``what`` names the owner) for a schema that is
    malformed, too large, too deep, points outside itself or holds a pattern without linear-time
    meaning, breaks its draft's metaschema or names an unknown draft.

    ``object_root``: the root must describe an object.
    """
    _Walk(schema, param, what, code).run(object_root)


class _Walk:
    """One validation: carries the wording and the limits through the schema."""

    def __init__(self, root: Any, param: str, what: str, code: str | None):
        self.root, self.param, self.what, self.code = root, param, what, code
        self.nodes = 0
        draft = root.get("$schema") if isinstance(root, dict) else None
        self.draft = draft
        self.booleans = draft is None or (isinstance(draft, str) and "draft-04" in draft)
        """Whether a boolean beside a bound makes it exclusive."""

    def fail(self, path: tuple[str, ...], reason: str) -> NoReturn:
        context = "(" + ", ".join(map(repr, path)) + ("," if len(path) == 1 else "") + ")"
        raise InvalidSchema(
            f"Invalid schema for {self.what}: In context={context}, {reason}",
            param=self.param,
            code=self.code,
        )

    def run(self, object_root: bool) -> None:
        root = self.root
        text = _dumps(root)
        if text is None:
            self.fail((), f"the schema exceeds the limit of {MAX_DEPTH} levels of nesting.")
        if len(text) > MAX_SCHEMA_CHARS:
            self.fail((), f"{len(text)} characters exceed the limit of {MAX_SCHEMA_CHARS}.")
        if "\\u0000" in text:
            self.fail((), "NUL characters are not permitted.")
        if object_root and isinstance(root, dict) and root.get("type", "object") != "object":
            shown = root["type"]
            self.fail(
                (), f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {shown!r}'."
            )
        stack: list[tuple[Any, tuple[str, ...], int]] = [(root, (), 0)]
        while stack:
            node, path, depth = stack.pop()
            self.nodes += 1
            if depth > MAX_DEPTH:
                self.fail(path, f"more than {MAX_DEPTH} levels of nesting.")
            if self.nodes > MAX_NODES:
                self.fail((), f"more than {MAX_NODES} subschemas.")
            if isinstance(node, bool):
                continue
            if not isinstance(node, dict):
                self.fail(path, f"{_show(node)} is not of type 'object', 'boolean'.")
            self.keywords(node, path)
            stack.extend((sub, (*path, *step), depth + 1) for sub, step in subschemas(node))
        if wrong := metaschema_error(root, text):
            self.fail(*wrong)

    def dialect(self, draft: Any, path: tuple[str, ...]) -> None:
        """A draft that is known. One named inside the document changes nothing but its root may."""
        if base_of(draft) is None:
            self.fail(
                (*path, "$schema"),
                f"{_show(draft)} is no draft that is understood here (draft-04, draft-06, draft-07,"
                " 2019-09 or 2020-12).",
            )

    def keywords(self, node: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, value in node.items():
            if key in EXCLUSIVE and self.booleans and isinstance(value, bool):
                continue
            if check := CHECKS.get(key):
                reason = check(value)
                if reason:
                    self.fail((*path, key), f"{_show(value)} {reason}.")
        if "$schema" in node:
            self.dialect(node["$schema"], path)
        if "$ref" in node and resolve(self.root, node["$ref"]) is None:
            ref = node["$ref"]
            kind = (
                "points to nothing in this schema"
                if ref.startswith("#")
                else ("points outside this schema; remote references are not followed")
            )
            self.fail((*path, "$ref"), f"reference '{ref[:200]}' {kind}.")


def subschemas(node: dict[str, Any]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """(subschema, path steps) of every schema position; a property name is no keyword."""
    for key, value in node.items():
        if key in MAPS and isinstance(value, dict):
            for name, sub in value.items():
                yield sub, (key, name)
        elif (key in LISTS or key == "items") and isinstance(value, list):
            for i, sub in enumerate(value):
                yield sub, (key, str(i))
        elif key in SINGLES:
            yield value, (key,)
        elif key == "dependencies" and isinstance(value, dict):
            for name, sub in value.items():
                if not isinstance(sub, list):
                    yield sub, (key, name)


def _dumps(value: Any) -> str | None:
    try:
        return json.dumps(value)
    except RecursionError:
        return None


def _show(value: Any) -> str:
    text = _dumps(value) or "..."
    return text if len(text) <= 80 else text[:77] + "..."


def _type(value: Any) -> str | None:
    names = value if isinstance(value, list) else [value]
    bad = [name for name in names if not isinstance(name, str) or name not in TYPES]
    return "is not valid under any of the given schemas" if bad or not names else None


def _count(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = number and (isinstance(value, int) or value.is_integer())
    return None if whole and value >= 0 else "is not a non-negative integer"


def _number(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number else "is not of type 'number'"


def _multiple(value: Any) -> str | None:
    return _number(value) or (None if value > 0 else "is less than or equal to the minimum of 0")


def _string_list(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return None if good else "is not an array of strings"


def _enum(value: Any) -> str | None:
    if not isinstance(value, list):
        return "is not of type 'array'"
    if not value:
        return "is an empty enum: nothing could satisfy it"
    many = len(value) > MAX_ENUM_VALUES
    return f"has more than {MAX_ENUM_VALUES} values" if many else None


def _string(value: Any) -> str | None:
    return None if isinstance(value, str) else "is not of type 'string'"


def _map(value: Any) -> str | None:
    return None if isinstance(value, dict) else "is not of type 'object'"


def _list(value: Any) -> str | None:
    return None if isinstance(value, list) and value else "is not a non-empty array"


def _pattern(value: Any) -> str | None:
    return _string(value) or check_pattern(value)


def _patterns(value: Any) -> str | None:
    return _map(value) or next(filter(None, map(check_pattern, value)), None)


def _dependent_required(value: Any) -> str | None:
    return _map(value) or next(filter(None, map(_string_list, value.values())), None)


CHECKS: dict[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(MAPS | {"dependencies"}, _map),
    **dict.fromkeys(LISTS, _list),
    **dict.fromkeys(_COUNTS, _count),
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(_STRINGS, _string),
    "type": _type,
    "enum": _enum,
    "required": _string_list,
    "multipleOf": _multiple,
    "pattern": _pattern,
    "patternProperties": _patterns,
    "dependentRequired": _dependent_required,
}
