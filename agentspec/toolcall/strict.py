"""OpenAI's rules for schemas that come with ``strict: true``, in its wording.

Structured Outputs takes a subset of JSON Schema: a root object, every property required, no other
properties, none of some keywords, and limits on size (OpenAI's guide, "Supported schemas").
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from agentspec.wire.errors import InvalidSchema

from .schema import subschemas

MAX_PROPERTIES = 5000
MAX_LEVELS = 10
MAX_NAME_CHARS = 120_000
MAX_ENUM_VALUES = 1000
MANY_ENUM_VALUES = 250
MAX_MANY_ENUM_CHARS = 15_000
_FORBIDDEN = (
    *("allOf", "not", "if", "then", "else", "oneOf", "dependentRequired", "dependentSchemas"),
    *("dependencies", "patternProperties", "propertyNames", "unevaluatedProperties"),
    *("unevaluatedItems", "contains", "minContains", "maxContains", "uniqueItems"),
    *("minProperties", "maxProperties", "default", "prefixItems", "additionalItems"),
)
_TELLING = ("type", "enum", "const", "anyOf", "$ref")
_DEFINITIONS = ("$defs", "definitions")
Path = tuple[str, ...]


def check_strict(schema: Any, param: str, what: str, *, code: str | None = None) -> None:
    """Raise ``InvalidSchema`` where ``schema``, which ``validate_schema`` has passed, is outside of
    the strict subset. ``what`` names the owner.
    """
    _Strict(schema, param, what, code).run()


class _Strict:
    def __init__(self, root: Any, param: str, what: str, code: str | None):
        self.root, self.param, self.what, self.code = root, param, what, code
        self.properties = self.enum_values = self.name_chars = 0

    def fail(self, path: Path, reason: str) -> NoReturn:
        context = "(" + ", ".join(map(repr, path)) + ("," if len(path) == 1 else "") + ")"
        raise InvalidSchema(
            f"Invalid schema for {self.what}: In context={context}, {reason}",
            param=self.param,
            code=self.code,
        )

    def run(self) -> None:
        self.check_root()
        stack: list[tuple[Any, Path, int]] = [(self.root, (), 0)]
        while stack:
            node, path, level = stack.pop()
            if not isinstance(node, dict):
                self.fail(path, "schema must be an object, got 'bool'.")
            self.keywords(node, path)
            opened = level + (_is(node, "object") or _is(node, "array"))
            if opened > MAX_LEVELS:
                self.fail(path, f"{opened} levels of nesting exceeds limit of {MAX_LEVELS}.")
            if _is(node, "object"):
                self.members(node, path)
            self.sizes(node, path)
            stack += _below(node, path, opened)

    def check_root(self) -> None:
        root = self.root
        if not isinstance(root, dict) or root.get("type") != "object":
            got = root.get("type") if isinstance(root, dict) else None
            self.fail(
                (), f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {got!r}'."
            )
        if "anyOf" in root:
            self.fail((), "'anyOf' is not permitted at the root.")

    def keywords(self, node: dict[str, Any], path: Path) -> None:
        for key in _FORBIDDEN:
            if key in node:
                self.fail(path, f"'{key}' is not permitted.")
        if not any(key in node for key in _TELLING):
            self.fail(path, "schema must have a 'type' key.")
        if "$ref" in node and len(node.keys() - {"$ref", "description", *_DEFINITIONS}) > 0:
            extra = sorted(node.keys() - {"$ref", "description", *_DEFINITIONS})
            self.fail(path, f"$ref cannot have keywords {set(extra)!r}.")
        if _is(node, "array") and "items" not in node:
            self.fail(path, "array schema missing items.")

    def members(self, node: dict[str, Any], path: Path) -> None:
        if node.get("additionalProperties") is not False:
            self.fail(path, "'additionalProperties' is required to be supplied and to be false.")
        required, properties = node.get("required"), node.get("properties", {})
        wanted = "'required' is required to be supplied and to be an array including every key in "
        for key in properties:
            if not isinstance(required, list) or key not in required:
                self.fail(path, f"{wanted}properties. Missing '{key}'.")
        for key in required or ():
            if key not in properties:
                self.fail(path, f"{wanted}properties. Extra required key '{key}' supplied.")
        self.properties += len(properties)
        self.name_chars += sum(map(len, properties))
        if self.properties > MAX_PROPERTIES:
            self.fail(
                (),
                f"schema exceeds the limit of {MAX_PROPERTIES} object properties in total.",
            )

    def sizes(self, node: dict[str, Any], path: Path) -> None:
        values = node.get("enum", [])
        self.enum_values += len(values)
        if self.enum_values > MAX_ENUM_VALUES:
            self.fail((), f"schema exceeds the limit of {MAX_ENUM_VALUES} enum values in total.")
        chars = sum(
            len(value) if isinstance(value, str) else len(json.dumps(value)) for value in values
        )
        if len(values) > MANY_ENUM_VALUES and chars > MAX_MANY_ENUM_CHARS:
            self.fail(
                path,
                f"an enum of more than {MANY_ENUM_VALUES} values has {chars} characters, more than "
                f"the limit of {MAX_MANY_ENUM_CHARS}.",
            )
        self.name_chars += chars
        self.name_chars += len(json.dumps(node["const"])) if "const" in node else 0
        self.name_chars += sum(len(name) for key in _DEFINITIONS for name in node.get(key, {}))
        if self.name_chars > MAX_NAME_CHARS:
            self.fail(
                (),
                f"names, enum and const values exceed the limit of {MAX_NAME_CHARS} characters in "
                "total.",
            )


def _is(node: dict[str, Any], kind: str) -> bool:
    kinds = node.get("type")
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def _below(node: dict[str, Any], path: Path, level: int) -> Iterator[tuple[Any, Path, int]]:
    """Subschemas in reverse, so that a stack takes them in order. Definitions start anew."""
    found = [
        (sub, (*path, *step), 0 if step[0] in _DEFINITIONS else level)
        for sub, step in subschemas(node)
        if step[0] != "additionalProperties"
    ]
    yield from reversed(found)
