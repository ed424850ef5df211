"""Requests to output specs, and the refusals in OpenAI's wording with the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.toolcall.choice import EMPTY_PARAMETERS, OutputSpec, output_spec
from agentspec.toolcall.format import load_format
from agentspec.wire.chat import decode_request, encode
from agentspec.wire.errors import InvalidRequest, InvalidSchema

FORMAT = load_format("smollm2")
OBJECT = {"type": "object", "properties": {"x": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": OBJECT}} for name in ("a", "b.c")
]


def spec(**fields: Any) -> OutputSpec | None:
    body = {"model": "m", "messages": [{"role": "user", "content": "u"}], **fields}
    return output_spec(decode_request(encode(body)), FORMAT)


def names(made: OutputSpec | None) -> list[str]:
    return [f.name for f in made.functions] if made else []


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        spec(**fields)
    return caught.value


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tools": TOOLS, "tool_choice": "none"},
        {"response_format": {"type": "text"}},
    ],
)
def test_free_text_has_no_spec(fields):
    assert spec(**fields) is None


@pytest.mark.parametrize(
    ("choice", "calls", "called"),
    [
        (None, "may", ["a", "b.c"]),
        ("auto", "may", ["a", "b.c"]),
        ("required", "must", ["a", "b.c"]),
        ({"type": "function", "function": {"name": "b.c"}}, "must", ["b.c"]),
        ({"type": "function", "name": "a"}, "must", ["a"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "a"}}],
                },
            },
            "must",
            ["a"],
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "b.c"}],
            },
            "may",
            ["b.c"],
        ),
    ],
)
def test_tool_choice(choice, calls, called):
    made = spec(tools=TOOLS, tool_choice=choice)
    assert made is not None
    assert (made.calls, names(made)) == (calls, called)
    assert made.max_calls == FORMAT.max_calls
    one = spec(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    assert one is not None and one.max_calls == 1


@pytest.mark.parametrize("parameters", [None, {}, ...])
def test_functions_without_parameters_take_an_empty_object(parameters):
    function = {"name": "f"} if parameters is ... else {"name": "f", "parameters": parameters}
    made = spec(tools=[{"type": "function", "function": function}])
    assert made is not None and made.functions[0].parameters == EMPTY_PARAMETERS


def test_parameters_always_describe_an_object():
    function = {"name": "f", "parameters": {"anyOf": [OBJECT, {"type": "object"}]}}
    made = spec(tools=[{"type": "function", "function": function}])
    assert made is not None and made.functions[0].parameters["type"] == "object"
    assert made.functions[0].param == "tools[0].function.parameters"


def test_response_formats():
    made = spec(response_format={"type": "json_object"})
    assert made is not None and made.answer is not None and made.answer.schema == {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "r", "schema": OBJECT}}
    made = spec(response_format=wanted)
    assert made is not None and made.answer is not None and made.answer.schema == OBJECT
    both = spec(response_format=wanted, tools=TOOLS)
    assert both is not None and both.calls == "may" and both.answer == made.answer
    must = spec(response_format=wanted, tools=TOOLS, tool_choice="required")
    assert must is not None and must.answer is None


def test_strict_schemas_are_held_to_the_strict_rules():
    loose = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = {"name": "f", "parameters": loose, "strict": True}
    error = refusal(tools=[{"type": "function", "function": tool}])
    assert (error.param, error.code) == (
        "tools[0].function.parameters",
        "invalid_function_parameters",
    )
    wanted = {"name": "r", "schema": loose, "strict": True}
    error = refusal(response_format={"type": "json_schema", "json_schema": wanted})
    assert (
        error.param == "response_format" and "'additionalProperties' is required" in error.message
    )
    assert spec(tools=[{"type": "function", "function": {**tool, "strict": False}}]) is not None
    closed = {**loose, "required": ["a"], "additionalProperties": False}
    assert (
        spec(tools=[{"type": "function", "function": {**tool, "parameters": closed}}]) is not None
    )


def test_own_grammar():
    made = spec(agentspec={"grammar": "start: /a/"})
    assert made is not None and made.grammar == "start: /a/" and made.calls == "never"
    assert spec(agentspec={"grammar": "start: /a/"}, tools=TOOLS, tool_choice="none") is not None
    for more in ({"tools": TOOLS}, {"response_format": {"type": "json_object"}}):
        error = refusal(agentspec={"grammar": "start: /a/"}, **more)
        assert error.param == "agentspec.grammar"


def test_keys_tell_specs_apart():
    keys = {
        made.key()
        for made in (
            spec(tools=TOOLS),
            spec(tools=TOOLS, tool_choice="required"),
            spec(tools=TOOLS, parallel_tool_calls=False),
            spec(tools=TOOLS[:1]),
            spec(tools=TOOLS[::-1]),
            spec(response_format={"type": "json_object"}),
            spec(tools=TOOLS, response_format={"type": "json_object"}),
            spec(agentspec={"grammar": "start: /a/"}),
        )
        if made is not None
    }
    assert len(keys) == 8
    first, second = spec(tools=TOOLS), spec(tools=TOOLS, temperature=0.5)
    assert first is not None and second is not None and first.key() == second.key()


@pytest.mark.parametrize(
    ("fields", "param", "code", "words"),
    [
        ({"tool_choice": "required"}, "tool_choice", "invalid_value", "'tools' are specified"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "a"}}},
            "tool_choice",
            "invalid_value",
            "'tools' are specified",
        ),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "invalid_value", "'any'"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "z"}}},
            "tool_choice.function.name",
            "invalid_value",
            "'z'",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function"}},
            "tool_choice.function.name",
            "missing_required_parameter",
            "Missing",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "magic"}},
            "tool_choice.type",
            "invalid_value",
            "'function', and 'allowed_tools'",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": []}},
            "tool_choice.tools",
            "missing_required_parameter",
            "Missing",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "tools": [{"name": "q"}]}},
            "tool_choice.tools[0].name",
            "invalid_value",
            "'q'",
        ),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools[2].function.name", "invalid_value", "unique"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "invalid_value",
            "does not match pattern",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a" * 65}}]},
            "tools[0].function.name",
            "invalid_value",
            "does not match pattern",
        ),
        (
            {"tools": [{"type": "custom", "function": {"name": "a"}}]},
            "tools[0].type",
            "invalid_value",
            "'custom'",
        ),
        (
            {"response_format": {"type": "object"}},
            "response_format.type",
            "invalid_value",
            "Invalid value: 'object'. Supported values are: 'json_object', 'json_schema', "
            "and 'text'.",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
            "Missing required parameter: 'response_format.json_schema'.",
        ),
    ],
)
def test_refusals_name_the_field(fields, param, code, words):
    error = refusal(**fields)
    assert (error.param, error.code) == (param, code)
    assert words in error.message


def test_bad_schemas_in_openais_wording():
    bad = {"type": "object", "properties": {"x": {"type": "strng"}}}
    tools = [*TOOLS, {"type": "function", "function": {"name": "c", "parameters": bad}}]
    error = refusal(tools=tools)
    assert isinstance(error, InvalidSchema)
    assert error.param == "tools[2].function.parameters"
    assert error.code == "invalid_function_parameters"
    assert error.message.startswith(
        "Invalid schema for function 'c': In context=('properties', 'x', 'type'), "
    )
    error = refusal(
        response_format={"type": "json_schema", "json_schema": {"name": "R", "schema": bad}}
    )
    assert error.param == "response_format"
    assert error.message.startswith("Invalid schema for response_format 'R': In context=(")
    text = {"type": "function", "function": {"name": "t", "parameters": {"type": "string"}}}
    error = refusal(tools=[text])
    assert "must be a JSON Schema of 'type: \"object\"', got 'type: 'string''" in error.message
