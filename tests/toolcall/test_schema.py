"""Which schemas are refused before any engine sees them, and which are none of its business."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.toolcall.pattern import check_pattern, compiled
from agentspec.toolcall.refs import resolve
from agentspec.toolcall.schema import (
    MAX_DEPTH,
    MAX_ENUM_VALUES,
    MAX_NODES,
    MAX_SCHEMA_CHARS,
    validate_schema,
)
from agentspec.wire.errors import InvalidSchema


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def reason(schema: Any) -> str | None:
    try:
        validate_schema(schema, "p", "function 'f'", code="c")
    except InvalidSchema as error:
        assert (error.param, error.code) == ("p", "c")
        return error.message
    return None


@pytest.mark.parametrize(
    ("schema", "context"),
    [
        ([], "()"),
        ({"type": "text"}, "('type',)"),
        ({"type": []}, "('type',)"),
        ({"type": ["string", 3]}, "('type',)"),
        ({"properties": []}, "('properties',)"),
        ({"properties": {"a": 3}}, "('properties', 'a')"),
        ({"items": "x"}, "('items',)"),
        ({"items": [{"type": 1}]}, "('items', '0', 'type')"),
        ({"required": "a"}, "('required',)"),
        ({"required": [1]}, "('required',)"),
        ({"enum": []}, "('enum',)"),
        ({"enum": {}}, "('enum',)"),
        ({"anyOf": []}, "('anyOf',)"),
        ({"anyOf": {"a": 1}}, "('anyOf',)"),
        ({"minLength": -1}, "('minLength',)"),
        ({"maxItems": 1.5}, "('maxItems',)"),
        ({"minimum": "3"}, "('minimum',)"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "exclusiveMinimum": True},
            "('exclusiveMinimum',)",
        ),
        ({"multipleOf": 0}, "('multipleOf',)"),
        ({"pattern": 3}, "('pattern',)"),
        ({"pattern": "["}, "('pattern',)"),
        ({"pattern": "a(?=b)"}, "('pattern',)"),
        ({"pattern": r"(a)\1"}, "('pattern',)"),
        ({"patternProperties": {"(?!a)": {}}}, "('patternProperties',)"),
        ({"$ref": 1}, "('$ref',)"),
        ({"$ref": "#/$defs/none"}, "('$ref',)"),
        ({"$ref": "https://example.com/s.json"}, "('$ref',)"),
        ({"$ref": "other.json#/a"}, "('$ref',)"),
        ({"not": {"type": "q"}}, "('not', 'type')"),
        ({"dependentRequired": {"a": "b"}}, "('dependentRequired',)"),
    ],
)
def test_malformed_schemas_are_refused_where_they_are_wrong(schema, context):
    message = reason(schema)
    assert message is not None
    assert message.startswith(f"Invalid schema for function 'f': In context={context}, ")


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "nullable": True, "encrypted": True, "x-other": [1]},
        {"properties": {"type": {"type": "string"}, "enum": {}, "$ref": {"type": "null"}}},
        {"const": {"type": "nonsense", "$ref": "http://x"}, "default": {"enum": []}},
        {"enum": [{"pattern": "["}]},
        {"$ref": "#/$defs/a%20b/items", "$defs": {"a b": {"items": {}}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$id": "https://example.com/root", "$ref": "part", "$defs": {"p": {"$id": "part"}}},
        {"items": [{}, {}], "additionalItems": False},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "exclusiveMinimum": True,
            "minimum": 3,
        },
        {"not": {"const": 1}, "if": {}, "then": {}, "uniqueItems": True, "format": "anything"},
        {"minLength": 2.0},
        nested(MAX_DEPTH),
    ],
)
def test_what_is_understood_is_not_refused(schema):
    assert reason(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        nested(MAX_DEPTH + 1),
        nested(5000),
        {"enum": list(range(MAX_ENUM_VALUES + 1))},
        {"properties": {str(i): True for i in range(MAX_NODES + 1)}},
        {"description": "x" * MAX_SCHEMA_CHARS},
        {"const": "a\0b"},
        {"properties": {"\0": {}}},
        {"pattern": "((a{1,900}){1,900}){1,900}"},
    ],
)
def test_limits(schema):
    assert reason(schema) is not None


def test_patterns_speak_ecma_in_linear_time():
    assert compiled(r"^\d\w$").search("1_") and not compiled(r"^\d$").search("٣")
    assert compiled("b").search("abc")
    assert not compiled("^a$").search("a\n")
    assert compiled(r"^\u00e9\u{1F600}\/\cA$").search("é😀/\x01")
    assert compiled(r"^(?<year>\d{4})$").search("2024")
    assert not compiled("^(a+)+$").search("a" * 5000 + "b")
    assert check_pattern(r"\\1") is None
    assert check_pattern("a\0") == "holds a NUL character"
    for pattern, word in (
        ("(?<=a)b", "look-around"),
        (r"(a)\1", "back reference"),
        ("(", "missing )"),
    ):
        found = check_pattern(pattern)
        assert found is not None and word in found


def test_references_resolve_inside_the_document_only():
    root = {
        "$defs": {"a/b": {"type": "null"}, "~": True, "list": {"prefixItems": [{"const": 1}]}},
        "x": 3,
    }
    assert resolve(root, "#") is root
    assert resolve(root, "#/$defs/a~1b") == {"type": "null"}
    assert resolve(root, "#/$defs/~0") is True
    assert resolve(root, "#/$defs/list/prefixItems/0") == {"const": 1}
    for nowhere in ("#/x", "#/$defs/list/prefixItems/1", "#name", "file:///etc/passwd", "a#/b"):
        assert resolve(root, nowhere) is None
