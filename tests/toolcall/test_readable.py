"""Schemas that foreign servers may serve although our checker can't read all of them."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.readable import readable, readable_tools
from agentspec.toolcall.repair import CallChecker
from agentspec.wire.chat import FunctionDef, Tool
from agentspec.wire.errors import InvalidSchema

ODD: list[dict[str, Any]] = [
    {"pattern": "(?<=a)b"},
    {"pattern": r"(a)\1x"},
    {"pattern": "^.{1,5000}$"},
    {"type": "any"},
    {"type": ["string", "zork"]},
    {"type": None},
    {"required": True},
    {"minLength": "3"},
    {"patternProperties": {"(?<=a)b": {}}, "additionalProperties": False},
    {"items": "string"},
]


def tool(schema: Any) -> Tool:
    return Tool(FunctionDef("f", None, schema))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("wrap", [lambda odd: odd, lambda odd: {"not": odd}], ids=["plain", "not"])
def test_what_cannot_be_checked_is_refused_by_its_place(odd: dict[str, Any], wrap: Any):
    schema = {"type": "object", "properties": {"a": wrap(odd)}}
    with pytest.raises(InvalidSchema, match=r"can't be checked.*properties\.a") as refused:
        readable_tools([tool({"type": "object"}), tool(schema)])
    assert refused.value.param == "tools[1].function.parameters"
    with pytest.raises(InvalidSchema):
        readable(schema, "response_format.json_schema.schema", "response_format")


def test_types_in_capitals_are_read():
    schema = {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}, "required": ["n"]}
    checker = CallChecker(readable_tools([tool(schema)]))
    assert checker.check("f", '{"n": 1}').wrong is None
    assert checker.check("f", "{}").wrong is not None
    assert checker.check("f", '{"n": 1.5}').wrong is not None
    assert schema["type"] == "OBJECT"


@pytest.mark.parametrize("ref", ["#/$defs/zork", "https://example.com/s.json", "other.json#/a"])
def test_a_reference_to_nowhere_is_refused_by_its_field(ref: str):
    schema = {"type": "object", "properties": {"a": {"$ref": ref}}}
    with pytest.raises(InvalidSchema, match="reference") as refused:
        readable_tools([tool({"type": "object"}), tool(schema)])
    assert refused.value.param == "tools[1].function.parameters"
    with pytest.raises(InvalidSchema):
        readable(schema, "response_format.json_schema.schema", "response_format")


def test_arguments_are_an_object():
    with pytest.raises(InvalidSchema, match="type"):
        readable_tools([tool({"type": "string"})])


NULLABLE: list[dict[str, Any]] = [
    {"type": "string", "nullable": True},
    {"type": "string", "enum": ["x"], "nullable": True},
    {"enum": ["x"], "nullable": True},
    {"$ref": "#/$defs/s", "nullable": True},
    {"allOf": [{"$ref": "#/$defs/s"}], "nullable": True},
    {"const": "x", "nullable": True},
]


@pytest.mark.parametrize("sub", NULLABLE)
def test_nullable_lets_null_pass_and_nothing_else(sub: dict[str, Any]):
    defs = {"s": {"type": "string"}}
    checker = ValueChecker({"type": "object", "properties": {"a": sub}, "$defs": defs})
    assert checker.check('{"a": null}') is checker.check('{"a": "x"}') is None
    assert checker.check('{"a": 5}') is not None
    plain = sub | {"nullable": False}
    checker = ValueChecker({"type": "object", "properties": {"a": plain}, "$defs": defs})
    assert checker.check('{"a": null}') is not None


def test_a_property_called_nullable_is_none():
    checker = ValueChecker({"properties": {"nullable": {"type": "string"}}})
    assert checker.check('{"nullable": 5}') is not None
