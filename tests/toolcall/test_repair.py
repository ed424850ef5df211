"""Arguments from unconstrained models: what is mended, and what never is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.toolcall.repair import CallChecker
from agentspec.wire.chat import FunctionDef, Tool

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "integer", "minimum": 0},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "either": {"type": ["string", "integer"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "box": {"$ref": "#/$defs/box"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {"box": {"type": "object", "properties": {"w": {"type": "integer"}}}},
}
TOOLS = [
    Tool(function=FunctionDef(name="read", parameters=SCHEMA)),
    Tool(function=FunctionDef(name="ping", parameters=None)),
]
CHECKER = CallChecker(TOOLS)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"path": "x",}', {"path": "x"}),
        ("{'path': 'x'}", {"path": "x"}),
        ("{'path': 'it\\'s \"x\"', 'deep': True}", {"path": 'it\'s "x"', "deep": True}),
        ('```json\n{"path": "x"}\n```', {"path": "x"}),
        ('```\n{"path": "a\\n```\\nb"}\n```\n', {"path": "a\n```\nb"}),
        ('"{\\"path\\": \\"x\\"}"', {"path": "x"}),
        ('{"path": "a\nb"}', {"path": "a\nb"}),
        ('{"path": "x", "lines": "20"}', {"path": "x", "lines": 20}),
        ('{"path": "x", "ratio": "-0.5"}', {"path": "x", "ratio": -0.5}),
        ('{"path": "x", "deep": "true"}', {"path": "x", "deep": True}),
        ('{"path": "x", "tags": "[\\"a\\"]"}', {"path": "x", "tags": ["a"]}),
        ('{"path": "x", "box": {"w": "3"}}', {"path": "x", "box": {"w": 3}}),
        ('{"path": "x", "box": "{\\"w\\": 3}"}', {"path": "x", "box": {"w": 3}}),
        ('{"path": "x", "lines": null, "deep": null}', {"path": "x"}),
        ('{"path": "x", "box": {"w": null}}', {"path": "x", "box": {}}),
        ('{"path": "007"}', None),
        ('{"path": "x", "either": "5"}', None),
        ('{"path": "x"}', None),
    ],
)
def test_what_is_beyond_doubt_is_mended(text, meant):
    checked = CHECKER.check("read", text)
    assert checked.wrong is None
    assert checked.repaired == (meant is not None)
    if meant is None:
        assert checked.text == text
    else:
        assert json.loads(checked.text) == meant


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "x"',
        '{"path": "x',
        '{"path": "x", "tags": ["a"',
        "{'path': 'x'",
        '```json\n{"path": "x"}',
        '"{\\"path\\": \\"x\\""',
        '{"path": "x"}}',
        '{"path": "x"} {"path": "y"}',
        'Here: {"path": "x"}',
        '{"path": "C:\\dir",}',
        '{"path": "x", "path": "y",}',
        "{'path': 'x', 'path': 'y'}",
        '{"path": "x", "lines": "20 "}',
        '{"path": "x", "lines": "020"}',
        '{"path": "x", "lines": "2e1"}',
        '{"path": "x", "lines": "-1"}',
        '{"path": "x", "lines": "1.0"}',
        '{"path": "x", "ratio": NaN}',
        '{"path": "x", "deep": "yes"}',
        '{"path": "x", "other": 1}',
        '{"lines": 1}',
        '{"path": 5}',
        '["path"]',
        "path: x",
        "",
        "null",
    ],
)
def test_what_is_in_doubt_or_torn_is_not_mended(text):
    checked = CHECKER.check("read", text)
    assert checked.wrong and not checked.repaired and checked.text == text


def test_no_arguments_at_all_are_an_empty_object_where_that_is_valid():
    assert CHECKER.check("ping", "null").text == "{}"
    assert CHECKER.check("read", "null").wrong is not None
    checked = CHECKER.check("ping", "")
    assert (checked.text, checked.repaired, checked.wrong) == ("{}", True, None)


def test_a_tool_that_was_not_offered_is_wrong_whatever_its_arguments():
    assert CHECKER.check("rm", "{}").wrong == "no tool is named 'rm'"


@given(
    st.fixed_dictionaries(
        {"path": st.text(max_size=12)},
        optional={"lines": st.integers(0, 99), "tags": st.lists(st.text(max_size=4), max_size=2)},
    ),
    st.booleans(),
    st.data(),
)
def test_no_cut_text_is_ever_taken(value, python, data):
    whole = repr(value) if python else json.dumps(value)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    checked = CHECKER.check("read", cut)
    assert checked.wrong is not None and not checked.repaired
