"""Drafts: each schema is held to its own, old spellings keep their meaning, none breaks the check.

Truth: the draft's own validator of the jsonschema package on the schema as it was sent.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator

from agentspec.toolcall.check import ArgumentsChecker, ValueChecker
from agentspec.toolcall.schema import validate_schema
from agentspec.wire.chat import FunctionDef, Tool
from agentspec.wire.errors import InvalidSchema

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
TUPLE = {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False}
VALUES = [["a", 1], ["a"], [], ["a", "b"], ["a", 1, 2], [1], "x", 4, 4.5, 5, 6, {"a": 1}]


@pytest.mark.parametrize(
    ("schema", "judge"),
    [
        (TUPLE, Draft7Validator),
        ({"items": [{"type": "string"}], "additionalItems": {"type": "integer"}}, Draft7Validator),
        ({"items": [], "additionalItems": False}, Draft7Validator),
        ({"items": [{"type": "string"}, {"$ref": "#/items/0"}]}, Draft7Validator),
        ({"minimum": 4, "exclusiveMinimum": True}, Draft4Validator),
        ({"maximum": 5, "exclusiveMaximum": False, "minimum": 4}, Draft4Validator),
        ({"exclusiveMinimum": True}, Draft4Validator),
    ],
)
def test_old_spellings_mean_what_their_draft_says(schema, judge):
    validate_schema(schema, "p", "f")
    for value in VALUES:
        valid = judge(schema).is_valid(value)
        assert (ValueChecker(schema).check(json.dumps(value)) is None) == valid, value


@pytest.mark.parametrize("draft", [DRAFT_07, DRAFT_07[:-1], DRAFT_07.replace("http:", "https:")])
def test_a_named_draft_is_respected(draft):
    schema = {"$schema": draft, "type": "array", **TUPLE}
    validate_schema(schema, "p", "f")
    assert ValueChecker(schema).check('["a", 1]') is None
    assert ValueChecker(schema).check('["a", "b"]') is not None
    ignored = {"$schema": draft, "dependentRequired": {"a": ["b"]}}
    assert ValueChecker(ignored).check('{"a": 1}') is None


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "('$schema',)"),
        ({"$schema": "https://example.com/mine"}, "('$schema',)"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", **TUPLE}, "('items',)"),
        ({"$schema": DRAFT_07, "minimum": 1, "exclusiveMinimum": True}, "('exclusiveMinimum',)"),
        ({"properties": {"a": {"uniqueItems": 3}}}, "('properties', 'a', 'uniqueItems')"),
        ({"properties": {"a": {"required": ["x", "x"]}}}, "('properties', 'a', 'required')"),
        (
            {"properties": {"a": {"$schema": "https://example.com/mine"}}},
            "('properties', 'a', '$schema')",
        ),
        ({"title": 3}, "('title',)"),
    ],
)
def test_what_breaks_its_draft_is_refused_with_its_place(schema, told):
    with pytest.raises(InvalidSchema) as refused:
        validate_schema(schema, "tools[0].function.parameters", "function 'f'")
    assert refused.value.param == "tools[0].function.parameters"
    assert told in refused.value.message


def test_a_property_may_be_called_like_a_keyword():
    schema = {"properties": {"items": {"type": "array"}, "$schema": {"type": "string"}}}
    validate_schema(schema, "p", "f")
    assert ValueChecker(schema).check('{"$schema": 3}') is not None
    assert ValueChecker(schema).check('{"items": [3]}') is None


def test_a_named_draft_keeps_the_linear_patterns():
    schema = {
        "$schema": DRAFT_07,
        "properties": {"a": {"pattern": "^(a+)+$"}, "b": {"$ref": "#"}},
    }
    assert ValueChecker(schema).check(json.dumps({"b": {"a": "a" * 60 + "!"}})) is not None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "#", "a", "["]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["type", "items", "properties", "$ref", "enum", "allOf", "not", "required", "a"]
                + ["pattern", "patternProperties", "additionalItems", "minimum", "exclusiveMinimum"]
                + [
                    "dependentRequired",
                    "prefixItems",
                    "$schema",
                    "multipleOf",
                    "if",
                    "then",
                    "format",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(schema=st.dictionaries(st.sampled_from(["items", "allOf", "a"]), _JSON) | _JSON, value=_JSON)
def test_no_schema_makes_the_check_fall_over(schema, value):
    """Also one that was never validated."""
    if isinstance(schema, dict):
        tool = Tool(FunctionDef(name="f", parameters=schema))
        told = ArgumentsChecker([tool]).check("f", json.dumps({"a": value}))
        assert told is None or told
        try:
            validate_schema(schema, "p", "f")
        except InvalidSchema as refused:
            assert refused.param == "p"
            return
        assert "cannot be applied" not in (told or "")
