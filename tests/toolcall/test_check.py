"""Finished arguments: the whole of JSON Schema, linear patterns, no network, the drafts."""

from __future__ import annotations

import socket

import pytest

from agentspec.toolcall.check import ArgumentsChecker, ValueChecker
from agentspec.toolcall.formats import holds
from agentspec.wire.chat import FunctionDef, Tool

TOOLS = [
    Tool(
        FunctionDef(
            "edit",
            None,
            {
                "type": "object",
                "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        )
    ),
    Tool(FunctionDef("stop")),
]


def test_arguments_of_calls():
    checker = ArgumentsChecker(TOOLS)
    assert checker.check("edit", '{"path": "a", "line": 3}') is None
    assert checker.check("stop", "{}") is None
    for name, text, words in (
        ("edit", '{"line": 3}', "at $: 'path' is a required property"),
        ("edit", '{"path": "a", "line": "3"}', "at $.line: '3' is not of type 'integer'"),
        ("edit", '{"path": "a", "x": 1}', "'x' is not allowed"),
        ("edit", '{"path": "a"', "not JSON"),
        ("edit", '["a"]', "not a JSON object"),
        ("edit", '{"path": NaN}', "not JSON"),
        ("stop", "null", "not a JSON object"),
        ("move", "{}", "no tool is named 'move'"),
    ):
        found = checker.check(name, text)
        assert found is not None and words in found


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"not": {"type": "string"}}, "1", '"a"'),
        ({"uniqueItems": True}, "[1, 2]", "[1, 1]"),
        ({"contains": {"const": 1}}, "[0, 1]", "[0]"),
        ({"oneOf": [{"minimum": 2}, {"maximum": 5}]}, "1", "3"),
        ({"if": {"const": 1}, "then": False}, "2", "1"),
        ({"dependentRequired": {"a": ["b"]}}, '{"b": 1}', '{"a": 1}'),
        ({"propertyNames": {"maxLength": 1}}, '{"a": 1}', '{"ab": 1}'),
        ({"pattern": "b"}, '"abc"', '"ac"'),
        ({"pattern": "^a$"}, '"a"', '"a\\n"'),
        ({"patternProperties": {"^a": {"type": "null"}}}, '{"b": 1}', '{"ab": 1}'),
        (
            {"patternProperties": {"^a": True}, "additionalProperties": False},
            '{"ab": 1}',
            '{"b": 1}',
        ),
        (
            {"additionalProperties": {"type": "null"}, "properties": {"a": {}}},
            '{"a": 1}',
            '{"b": 1}',
        ),
        (
            {"allOf": [{"patternProperties": {"^a": {}}}], "unevaluatedProperties": False},
            '{"ab": 1}',
            '{"b": 1}',
        ),
        (
            {
                "$defs": {"a": {"properties": {"a": {}}}},
                "$ref": "#/$defs/a",
                "unevaluatedProperties": {"type": "null"},
            },
            '{"a": 1, "b": null}',
            '{"b": 1}',
        ),
        (
            {
                "if": {"required": ["k"], "properties": {"k": {}}},
                "then": {"properties": {"t": {}}},
                "else": {"properties": {"e": {}}},
                "unevaluatedProperties": False,
            },
            '{"k": 1, "t": 1}',
            '{"k": 1, "e": 1}',
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "minimum": 3,
                "exclusiveMinimum": True,
            },
            "4",
            "3",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": [{"type": "null"}],
                "additionalItems": False,
            },
            "[null]",
            "[null, 1]",
        ),
        ({"$schema": "https://example.com/unknown", "type": "null"}, "null", "1"),
        ({"format": "date"}, '"2024-02-29"', '"2023-02-29"'),
        ({"multipleOf": 0.5}, "1.5", "1.2"),
    ],
)
def test_keywords(schema, good, bad):
    checker = ValueChecker(schema)
    assert checker.check(good) is None
    assert checker.check(bad) is not None


def test_nothing_is_fetched(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for ref in ("http://127.0.0.1:9/s.json", "file:///etc/passwd", "other.json"):
        found = ValueChecker({"$ref": ref}).check("1")
        assert found is not None and "cannot be resolved" in found


def test_a_hostile_pattern_and_value_take_linear_time():
    checker = ValueChecker({"pattern": "^(a+)+$", "patternProperties": {"^(a+)+$": {}}})
    assert checker.check('"' + "a" * 20_000 + 'b"') is not None
    assert checker.check('{"' + "a" * 20_000 + 'b": 1}') is None


def test_deep_or_huge_values_are_told_not_raised():
    deep = "[" * 100_000 + "]" * 100_000
    assert ValueChecker({}).check(deep) == "the value is nested too deeply"
    assert ValueChecker({"multipleOf": 3}).check("1e999") is not None
    assert ValueChecker({}).check("1" * 5000) is not None


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "0000-02-29 2024-12-31", "2024-13-01 24-01-01 2024-1-1 2023-02-29"),
        ("time", "12:00:00Z 23:59:60.5+02:00", "12:00:00 24:00:00Z 12:00Z"),
        (
            "date-time",
            "2024-01-01T00:00:00Z 2024-01-01t00:00:00.1-00:00",
            "2024-01-01 2024-02-30T00:00:00Z",
        ),
        ("duration", "P1D PT1H P1Y2M3DT4H5M6S P2W", "P PT 1D P1DT P1D2W"),
        ("email", "a@b a.b+c@d-e.fg", "a a@ @b a@b@"),
        ("hostname", "a a-b.c3 localhost", "-a a_b a..b"),
        ("ipv4", "1.2.3.4 255.255.255.255", "1.2.3 256.1.1.1 01.2.3.4"),
        ("ipv6", "::1 1:2:3:4:5:6:7:8", "1:2 fe80::1%eth0 :::"),
        ("uri", "http://a/b?c#d urn:x:y mailto:a@b", "a/b :x http://a{b}"),
        (
            "uuid",
            "00000000-0000-0000-0000-00000000000A",
            "0 00000000000000000000000000000000 {00000000-0000-0000-0000-000000000000}",
        ),
        ("iban", "anything", ""),
    ],
)
def test_formats(name, good, bad):
    assert all(holds(name, text) for text in good.split())
    assert not any(holds(name, text) for text in bad.split())
