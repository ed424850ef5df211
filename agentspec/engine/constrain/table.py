"""What becomes of each keyword of JSON Schema, read off the code: the table in docs/constraints.md.

Every keyword has a probe: a schema that uses it. Compiling the probe for the default backend tells
whether its mask holds the keyword, or the check of borders and the finished value.
"""

from __future__ import annotations

from typing import Any

from agentspec.toolcall.schema import validate_schema
from agentspec.wire.errors import InvalidSchema

from .relax import LEVELS, relax

_TEXT = {"type": "string"}
_PAIR = {"a": _TEXT, "b": _TEXT}
PROBES: dict[str, Any] = {
    "type": {"type": ["integer", "null"]},
    "enum": {"enum": [1, "a"]},
    "const": {"const": {"a": [1]}},
    "properties": {"type": "object", "properties": _PAIR},
    "required": {"type": "object", "properties": _PAIR, "required": ["a"]},
    "additionalProperties": {"type": "object", "additionalProperties": _TEXT},
    "patternProperties": {"type": "object", "patternProperties": {"^x": _TEXT}},
    "propertyNames (one rule)": {"type": "object", "propertyNames": {"pattern": "^x"}},
    "propertyNames (several rules)": {
        "type": "object",
        "propertyNames": {"pattern": "^x", "maxLength": 3},
    },
    "minProperties (declared keys)": {"properties": _PAIR, "type": "object", "minProperties": 1},
    "minProperties (other keys)": {"type": "object", "minProperties": 2},
    "maxProperties": {"type": "object", "maxProperties": 2},
    "items": {"type": "array", "items": _TEXT},
    "prefixItems": {"type": "array", "prefixItems": [_TEXT]},
    "minItems": {"type": "array", "minItems": 1},
    "maxItems": {"type": "array", "maxItems": 3},
    "uniqueItems": {"type": "array", "uniqueItems": True},
    "contains": {"type": "array", "contains": _TEXT},
    "unevaluatedItems": {"type": "array", "prefixItems": [_TEXT], "unevaluatedItems": False},
    "unevaluatedProperties": {"allOf": [{"properties": _PAIR}], "unevaluatedProperties": False},
    "minLength": {"type": "string", "minLength": 1},
    "maxLength": {"type": "string", "maxLength": 3},
    "pattern": {"type": "string", "pattern": "^a+$"},
    "pattern (look-around at ^ or $)": {"type": "string", "pattern": "^(?!x)a+$"},
    "pattern (other look-around)": {"type": "string", "pattern": "a(?=b)b"},
    "pattern (back references)": {"type": "string", "pattern": r"(a)\1"},
    "format (date, time, uuid, uri, email, ..)": {"type": "string", "format": "date-time"},
    "format (json-pointer, iri, regex, ..)": {"type": "string", "format": "json-pointer"},
    "minimum": {"type": "integer", "minimum": 3},
    "maximum": {"type": "number", "maximum": 3.5},
    "exclusiveMinimum": {"type": "integer", "exclusiveMinimum": 3},
    "exclusiveMaximum": {"type": "integer", "exclusiveMaximum": 3},
    "multipleOf (to 1000)": {"type": "integer", "multipleOf": 5},
    "multipleOf (larger)": {"type": "integer", "multipleOf": 5001},
    "allOf": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
    "anyOf": {"anyOf": [{"type": "integer"}, _TEXT]},
    "oneOf (disjoint)": {"oneOf": [{"type": "integer"}, _TEXT]},
    "not": {"not": {"const": 1}},
    "if, then, else": {"if": {"type": "integer"}, "then": {"minimum": 3}},
    "dependentRequired (alone)": {
        "type": "object",
        "properties": _PAIR,
        "dependentRequired": {"a": ["b"]},
    },
    "dependentRequired (elsewhere)": {
        "type": "object",
        "patternProperties": {"^x": _TEXT},
        "dependentRequired": {"a": ["b"]},
    },
    "dependentSchemas": {"dependentSchemas": {"a": {"required": ["b"]}}},
    "dependencies": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "dependencies": {"a": ["b"]},
    },
    "$ref (pointer)": {"$ref": "#/$defs/a", "$defs": {"a": _TEXT}},
    "$ref (anchor or id)": {"$ref": "#x", "$defs": {"a": {"$anchor": "x", **_TEXT}}},
    "$dynamicRef": {"$dynamicRef": "#x", "$defs": {"a": {"$dynamicAnchor": "x", **_TEXT}}},
    "$ref (another document)": {"$ref": "https://example.com/a.json"},
    "an unknown $schema": {"$schema": "https://example.com/draft"},
}
EXTRA = {
    "oneOf (overlapping)": "checked",
    "keys that come twice": "checked",
    "other formats, unknown words, annotations": "not looked at",
}
"""What no probe shows: the engine finds out about branches by itself."""


def treatment(schema: Any) -> str:
    """ "masked", "checked" or "refused"."""
    try:
        validate_schema(schema, "response_format", "the schema")
    except InvalidSchema:
        return "refused"
    return "checked" if relax(schema, LEVELS[0]).unchecked else "masked"


def table() -> str:
    """The Markdown table, a row a keyword."""
    rows = {name: treatment(schema) for name, schema in PROBES.items()} | EXTRA
    lines = [f"| {_code(name)} | {what} |" for name, what in sorted(rows.items(), key=_order)]
    return "\n".join(["| keyword | |", "| --- | --- |", *lines]) + "\n"


def _order(row: tuple[str, str]) -> tuple[int, str]:
    return ("masked", "checked", "not looked at", "refused").index(row[1]), row[0].lower()


def _code(name: str) -> str:
    word, space, rest = name.partition(" ")
    plain = space and not rest.startswith("(")
    return name if plain else f"`{word}`{space}{rest}"


def page(text: str) -> str:
    """``text`` with its table, between the marks, written anew."""
    begin, end = "<!-- table -->\n", "<!-- /table -->"
    head, _, rest = text.partition(begin)
    return head + begin + table() + end + rest.partition(end)[2]
