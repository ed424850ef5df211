"""Argument values that come as bare text: which type they have is the tool's schema's word."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .check import ValueChecker
from .spelling import PYTHON, Misspelled, read_value

_ALL = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_MAX_HOPS = 32
_DEFINITIONS = ("$defs", "definitions", "$schema")


class ArgumentTypes:
    """The types of one tool's arguments. schema: its parameters; None: nothing is known."""

    def __init__(self, schema: Mapping[str, Any] | None):
        self._root = schema or {}
        self._checkers: dict[str, ValueChecker] = {}

    def value(self, key: str, text: str) -> Any:
        """The value that ``text`` means for the argument ``key``.

        Where only a string is allowed it is the text itself; else what it spells, if the schema
        allows a value like that; else again the text.
        """
        schema = property_schema(self._root, key)
        types = types_of(schema, self._root)
        if types == {"string"}:
            return text
        value = spelled(text)
        if value is None and text.strip() not in ("null", "None"):
            return text
        if isinstance(value, str) or not _fits(value, types):
            return text
        if "string" in types and not self._valid(key, schema, value):
            return text
        return value

    def never_string(self, key: str) -> bool:
        """Whether the schema allows no string for the argument ``key``."""
        return "string" not in types_of(property_schema(self._root, key), self._root)

    def _valid(self, key: str, schema: Any, value: Any) -> bool:
        """Where both readings are possible, that of the value must satisfy the schema."""
        if key not in self._checkers:
            self._checkers[key] = ValueChecker(with_definitions(schema, self._root))
        return self._checkers[key].check(json.dumps(value)) is None


def spelled(text: str) -> Any:
    """A JSON value, or one in Python's spelling (templates print those); None: it is neither."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return None
    except ValueError:
        pass
    try:
        return read_value(text, PYTHON)
    except Misspelled:
        return None


def property_schema(root: Mapping[str, Any], key: str) -> Any:
    """The schema of an object's property; True where nothing is said of it."""
    node = resolved(root, root)
    if not isinstance(node, Mapping):
        return True
    properties = node.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    additional = node.get("additionalProperties", True)
    return additional if isinstance(additional, Mapping) else True


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """The JSON types that a schema may allow; more than it does rather than less."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _MAX_HOPS:
        return set(_ALL)
    types = set(_ALL)
    kind = schema.get("type")
    if isinstance(kind, str):
        types &= {kind}
    elif isinstance(kind, list):
        types &= {k for k in kind if isinstance(k, str)}
    values = schema.get("enum") if isinstance(schema.get("enum"), list) else None
    if "const" in schema:
        values = [schema["const"]]
    if values is not None:
        types &= {name for value in values for name in _names(value)}
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            types &= set().union(*(types_of(s, root, depth + 1) for s in schema[word]))
    for sub in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        types &= types_of(sub, root, depth + 1)
    return types | {"null"} if schema.get("nullable") is True else types


def resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema that a chain of local ``$ref`` leads to; True where it leads nowhere."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = _pointed(root, schema["$ref"])
    return True


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Any:
    """A part of a document as a document of its own: the definitions go with it."""
    if not isinstance(schema, Mapping):
        return schema
    return {**{k: root[k] for k in _DEFINITIONS if k in root}, **schema}


def _pointed(root: Any, ref: str) -> Any:
    if not ref.startswith("#"):
        return True
    for part in ref[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and part.isdigit() and int(part) < len(root):
            root = root[int(part)]
        elif isinstance(root, Mapping) and part in root:
            root = root[part]
        else:
            return True
    return root


def _fits(value: Any, types: set[str]) -> bool:
    return not types.isdisjoint(_names(value))


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ("null",)
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int):
        return ("integer", "number")
    if isinstance(value, float):
        return ("integer", "number") if value.is_integer() else ("number",)
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return (kinds[type(value)],)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
