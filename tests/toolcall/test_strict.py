"""``strict: true``: OpenAI's subset, its limits and its wording."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.toolcall.strict import MAX_LEVELS, MAX_PROPERTIES, check_strict
from agentspec.wire.errors import InvalidSchema

TEXT = {"type": "string"}


def strict(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def reason(schema: Any) -> str | None:
    try:
        check_strict(schema, "tools[0].function.parameters", "function 'f'", code="c")
    except InvalidSchema as error:
        assert (error.param, error.code) == ("tools[0].function.parameters", "c")
        return error.message.removeprefix("Invalid schema for function 'f': ")
    return None


def nested(levels: int) -> dict[str, Any]:
    schema = strict(leaf=TEXT)
    for _ in range(levels - 1):
        schema = strict(inner=schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        strict(),
        strict(a={"type": ["string", "null"]}, b={"enum": [1, 2]}, c={"const": "x"}),
        strict(a={"anyOf": [strict(x=TEXT), {"type": "null"}], "description": "either"}),
        strict(a={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 4}),
        strict(a={"type": "number", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 3}),
        strict(a={"type": "string", "pattern": "^a", "format": "email"}),
        {
            **strict(list={"$ref": "#/$defs/node"}),
            "$defs": {"node": strict(next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})},
        },
        strict(self={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        strict(properties=TEXT, required=TEXT, allOf={"type": "boolean"}),
        nested(MAX_LEVELS),
        strict(**{f"p{i}": TEXT for i in range(MAX_PROPERTIES)}),
    ],
)
def test_the_subset_passes(schema):
    assert reason(schema) is None


MISSING = (
    "'required' is required to be supplied and to be an array including every key in properties."
)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
            "In context=(), 'additionalProperties' is required to be supplied and to be false.",
        ),
        (
            strict(a={**strict(b=TEXT), "additionalProperties": True}),
            "In context=('properties', 'a'), 'additionalProperties' is required to be supplied and "
            "to be false.",
        ),
        ({**strict(a=TEXT, b=TEXT), "required": ["b"]}, f"In context=(), {MISSING} Missing 'a'."),
        (
            {**strict(a=TEXT), "required": ["a", "z"]},
            f"In context=(), {MISSING} Extra required key 'z' supplied.",
        ),
        (strict(a={"allOf": [TEXT]}), "In context=('properties', 'a'), 'allOf' is not permitted."),
        (
            strict(a={"type": "string", "default": "x"}),
            "In context=('properties', 'a'), 'default' is not permitted.",
        ),
        (
            strict(a={"type": "array", "items": {"not": TEXT, "type": "null"}}),
            "In context=('properties', 'a', 'items'), 'not' is not permitted.",
        ),
        (
            strict(a={"type": "array"}),
            "In context=('properties', 'a'), array schema missing items.",
        ),
        (strict(a={}), "In context=('properties', 'a'), schema must have a 'type' key."),
        (
            {**strict(a=TEXT), "anyOf": [strict(a=TEXT)]},
            "In context=(), 'anyOf' is not permitted at the root.",
        ),
        (
            {"anyOf": [strict(a=TEXT)]},
            "In context=(), schema must be a JSON Schema of 'type: \"object\"', got 'type: None'.",
        ),
    ],
)
def test_what_is_outside_is_told_with_its_place(schema, message):
    assert reason(schema) == message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (nested(MAX_LEVELS + 1), "11 levels of nesting exceeds limit of 10."),
        (strict(**{f"p{i}": TEXT for i in range(MAX_PROPERTIES + 1)}), "5000 object properties"),
        (strict(a={"enum": list(range(1001))}), "1000 enum values"),
        (strict(a={"enum": [f"{i:0100}" for i in range(251)]}), "15000"),
        (strict(**{f"{i:01000}": TEXT for i in range(130)}), "120000 characters"),
    ],
)
def test_limits(schema, words):
    found = reason(schema)
    assert found is not None and words in found
