"""Keyword by keyword, the corners of draft 2020-12: what serves takes and refuses as it should.

Truth: the specification's text, read by hand. A text is accepted where the mask of the checked
language lets its tokens through and the check of the finished value passes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec.toolcall.check import ValueChecker

from .conftest import EOS, answer_spec

_TREE = {
    "$id": "https://example.test/open",
    "$dynamicAnchor": "node",
    "type": "object",
    "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#node"}}},
}
_CLOSED = {
    "$id": "https://example.test/closed",
    "$dynamicAnchor": "node",
    "$ref": "open",
    "unevaluatedProperties": False,
    "$defs": {"open": _TREE},
}
_IF = {
    "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]},
    "then": {"properties": {"x": {"type": "integer"}}},
    "else": {"properties": {"y": {"type": "integer"}}},
    "properties": {"k": {"type": "string"}},
    "unevaluatedProperties": False,
}
_EXTRA = {
    "properties": {"id": {"type": "integer"}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": {"type": "boolean"},
}

CASES: dict[str, tuple[Any, list[str], list[str]]] = {
    "integer": ({"type": "integer"}, ["1.0", "-0", "1e2", "7"], ["1.5", '"1"', "true", "null"]),
    "number is no boolean": ({"type": "number"}, ["0", "-1.5e1"], ["false", '"0"', "[]"]),
    "types": ({"type": ["string", "null"]}, ['""', "null"], ["0", "{}"]),
    "true": (True, ["0", '{"a": [null]}'], []),
    "const tells 1 from true": ({"const": 1}, ["1"], ["true", '"1"']),
    "const false": ({"const": False}, ["false"], ["0", "[]", "null"]),
    "const object": ({"const": {"a": 1, "b": [2]}}, ['{"a": 1, "b": [2]}'], ['{"a": 1}']),
    "enum": ({"enum": [0, "a", [True]]}, ["0", '"a"', "[true]"], ["false", "[1]", '"A"']),
    "pattern floats": ({"type": "string", "pattern": "b+"}, ['"abbc"', '"b"'], ['"ac"', '""']),
    "pattern anchored": ({"type": "string", "pattern": "^b+$"}, ['"bb"'], ['"abb"', '"bb\\n"']),
    "pattern is for strings": ({"pattern": "^a$"}, ["12", '"a"', "null"], ['"b"']),
    "length in code points": (
        {"type": "string", "minLength": 2, "maxLength": 2},
        ['"\U0001f600\U0001f600"', '"\\ud83d\\ude00x"', '"é1"'],
        ['"\U0001f600"', '"abc"', '"\\ud83d\\ude00"'],
    ),
    "cents": ({"type": "number", "multipleOf": 0.01}, ["4.35", "0.07", "19.99", "3"], ["0.075"]),
    "multiple": ({"type": "integer", "multipleOf": 3}, ["0", "-9", "12"], ["10", "-1"]),
    "exclusive": (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        ["0.1", "1.5"],
        ["0", "-1", "1.6"],
    ),
    "uniqueItems": (
        {"type": "array", "uniqueItems": True},
        ["[1, true]", "[0, false]", '["1", 1]', "[[1], [true]]", "[]"],
        ["[1, 1.0]", '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]', "[[1], [1.0]]"],
    ),
    "prefixItems": (
        {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}},
        ["[]", "[1]", '[1, "a"]', '[1, "a", true]', '"no array"'],
        ['["a"]', "[1, 2]", '[1, "a", 3]'],
    ),
    "items false": ({"prefixItems": [True], "items": False}, ["[]", "[null]"], ["[1, 2]"]),
    "contains": (
        {"contains": {"minimum": 5}, "minContains": 2, "maxContains": 3},
        ["[5, 1, 6]", "{}"],
        ["[5]", "[]", "[5, 6, 7, 8]"],
    ),
    "contains none": ({"contains": {"const": 1}, "minContains": 0}, ["[]", "[2]"], []),
    "beside $ref": (
        {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "maximum": 5},
        ["5", "-3"],
        ["6", '"a"'],
    ),
    "$ref escaped": (
        {
            "$defs": {"a/b": {"type": "integer"}, "c~d": {"type": "null"}},
            "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}},
        },
        ['{"x": 1, "y": null}', "{}"],
        ['{"x": null}', '{"y": 1}'],
    ),
    "$ref is a name, too": (
        {"properties": {"$ref": {"type": "string"}}},
        ['{"$ref": "a"}'],
        ['{"$ref": 2}'],
    ),
    "$dynamicRef": (
        _CLOSED,
        ['{"kids": [{"kids": []}]}', "{}"],
        ['{"kids": [{"kid": []}]}', '{"other": 1}'],
    ),
    "additional beside patterns": (
        _EXTRA,
        ['{"id": 1, "x-a": "s", "other": true}', "{}"],
        ['{"x-a": 1}', '{"other": 1}', '{"id": "1"}', '{"other": "s"}'],
    ),
    "required alone": ({"required": ["a"]}, ['{"a": null}', "[]", "1"], ["{}", '{"b": 1}']),
    "dependentRequired": (
        {"dependentRequired": {"a": ["b"]}},
        ["{}", '{"b": 1}', '{"b": 1, "a": 2}'],
        ['{"a": 1}'],
    ),
    "dependentSchemas": (
        {"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}},
        ['{"b": "s"}', '{"a": 1, "b": 2}'],
        ['{"a": 1, "b": "s"}'],
    ),
    "propertyNames": (
        {"propertyNames": {"maxLength": 2}},
        ['{"ab": 1}', "{}", '"abc"'],
        ['{"abc": 1}'],
    ),
    "count of properties": (
        {"minProperties": 1, "maxProperties": 2},
        ['{"a": 1}', '{"a": 1, "b": 2}', "7"],
        ["{}", '{"a": 1, "b": 2, "c": 3}'],
    ),
    "oneOf": (
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        ["1", "2.5", '"s"'],
        ["3", "1.5"],
    ),
    "anyOf": ({"anyOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5", "3"], ["1.5"]),
    "not": ({"not": {"type": ["integer", "null"]}}, ["1.5", '"a"'], ["1", "1.0", "null"]),
    "not not": ({"not": {"not": {"type": "string"}}}, ['"a"'], ["1"]),
    "if alone": ({"if": {"const": 0}}, ["0", "1"], []),
    "then without if": ({"then": {"const": 0}}, ["1"], []),
    "unevaluated through if": (
        _IF,
        ['{"k": "a", "x": 1}', '{"k": "b", "y": 1}', "{}"],
        ['{"k": "a", "y": 1}', '{"k": "b", "x": 1}', '{"z": 1}'],
    ),
    "unevaluated through allOf": (
        {
            "allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["b"]}],
            "properties": {"b": True},
            "unevaluatedProperties": False,
        },
        ['{"a": 1, "b": 2}', '{"b": null}'],
        ['{"b": 1, "c": 2}', '{"a": 1}', '{"a": "s", "b": 1}'],
    ),
    "additional does not see allOf": (
        {"allOf": [{"properties": {"a": True}}], "additionalProperties": False},
        ["{}"],
        ['{"a": 1}'],
    ),
    "unevaluated sees no failed branch": (
        {
            "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, True],
            "unevaluatedProperties": False,
        },
        ["{}", '{"a": 1}'],
        ['{"a": 2}'],
    ),
    "unevaluatedItems": (
        {"allOf": [{"prefixItems": [True, True]}], "unevaluatedItems": {"type": "integer"}},
        ['["a", null]', '["a", null, 1]', "[]"],
        ['["a", null, "b"]'],
    ),
    "unevaluatedItems behind contains": (
        {"contains": {"type": "string"}, "unevaluatedItems": False},
        ['["a"]', '["a", "b"]'],
        ['["a", 1]', "[]"],
    ),
    "format asserted": (
        {"type": "string", "format": "date"},
        ['"2024-02-29"'],
        ['"2024-13-01"', '"today"'],
    ),
    "format unknown": ({"type": "string", "format": "colour"}, ['"any thing"'], ["1"]),
    "format is for strings": ({"format": "date"}, ["1", "[]", '"2024-01-31"'], ['"x"']),
    "branches that only require": (
        {
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            "additionalProperties": False,
        },
        ['{"a": 1}', '{"b": "s", "a": 1}', "7"],
        ["{}", '{"c": 1}', '{"a": "s"}'],
    ),
    "one branch that only requires": (
        {
            "properties": {"a": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        ['{"a": 1}', '{"b": 2}'],
        ["{}", '{"b": 1, "a": 1}', '{"a": "s"}'],
    ),
    "branches alike once weakened": (
        {"oneOf": [{"type": "integer", "not": {"const": i}} for i in (1, 2)]},
        ["1", "2", "1.0"],
        ["3", "0", '"a"'],
    ),
    "branches alike but for spelling": (
        {
            "properties": {"k": {"type": "string"}, "x": {"type": "array"}},
            "oneOf": [{"properties": {"k": {"enum": [k]}}, "required": ["k"]} for k in "ab"],
            "additionalProperties": False,
        },
        ['{"k": "a", "x": []}', '{"x": [1], "k": "b"}'],
        ['{"k": "c"}', "{}", '{"k": "a", "y": 1}'],
    ),
    "equal numbers": (
        {"enum": [1, 2.5, -100]},
        ["1", "1.0", "1e0", "10E-1", "2.50", "0.25e1", "-1e2", "-100.00"],
        ["-1", "1.5", "100", "0", '"1"'],
    ),
    "equal numbers inside": (
        {"const": {"a": [1, {"b": 0}]}},
        ['{"a": [1, {"b": 0}]}', '{"a": [1.0, {"b": -0.0}]}', '{ "a" :[ 1e0 ,{"b":0e5}]}'],
        ['{"a": [1, {"b": 1}]}', '{"a": [1]}', '{"a": [1, {"b": 0, "c": 1}]}'],
    ),
    "equal texts": (
        {"enum": ["é", 'a"/', {"kéy": "x"}]},
        ['"é"', '"\\u00e9"', '"a\\"/"', '"\\u0061\\u0022\\u002f"', '{"k\\u00e9y": "\\u0078"}'],
        ['"e"', '"\\u00e8"', '"a/"', '{"key": "x"}'],
    ),
    "equal texts of other planes": (
        {"const": "😀"},
        ['"😀"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE00"'],
        ['"\\ud83d"', '"x"'],
    ),
    "keys in any order in a value": (
        {"enum": [{"a": 1, "b": [True, None]}]},
        ['{"a": 1, "b": [true, null]}', '{"b": [true, null], "a": 1}'],
        ['{"a": 1}', '{"a": 1, "b": [null, true]}'],
    ),
    "annotations": (
        {"title": "t", "default": 5, "examples": [1], "deprecated": True, "type": "string"},
        ['"a"'],
        ["5", "1"],
    ),
}


def accepted(small, compiled, checker: ValueChecker, text: str) -> bool:
    """Mask and check, as a client's answer meets them."""
    session = compiled.session()
    for token in small.encode(text):
        if not session.allows(token):
            return False
        session.accept([token])
    return EOS in small.allowed(session) and checker.check(text) is None


def test_a_branch_that_masks_cannot_hold_excludes_nothing(factories):
    schema, _, _ = CASES["branches alike once weakened"]
    assert factories().compile(answer_spec(schema)).proven


@pytest.mark.parametrize("name", CASES)
def test_instances_are_judged_rightly(small, factories, name):
    schema, valid, invalid = CASES[name]
    compiled = factories(canonical=False, flexible=True).compile(answer_spec(schema))
    checker = ValueChecker(schema)
    for text in (*valid, *invalid):
        json.loads(text)
    assert [t for t in valid if not accepted(small, compiled, checker, t)] == []
    assert [t for t in invalid if accepted(small, compiled, checker, t)] == []
