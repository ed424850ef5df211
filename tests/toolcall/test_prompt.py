"""Messages and tools to turns, and the ladder that keeps many tools short."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentspec.toolcall.choice import output_spec
from agentspec.toolcall.format import load_format
from agentspec.toolcall.prompt import build_turns, tools_saved_chars, tools_text
from agentspec.toolcall.shorten import LADDER, budget_chars, first_sentence, show_tools, signature
from agentspec.wire.chat import ChatRequest, FunctionDef, decode_request, encode
from agentspec.wire.errors import InvalidRequest

FORMAT = load_format("smollm2")
WEATHER = {
    "name": "weather",
    "description": "Look up the weather. Takes a while.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name."},
            "description": {"enum": ["short", "long"], "description": "How much."},
            "days": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["city"],
    },
}


def request(messages: list[dict[str, Any]], **more: Any) -> ChatRequest:
    return decode_request(encode({"model": "m", "messages": messages, **more}))


def tools(*functions: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": function} for function in functions]


def many(count: int) -> list[FunctionDef]:
    text = "Does a thing to a file and reports. " + "More words that nobody needs. " * 12
    properties = {
        f"parameter_{i}": {"type": "string", "description": "A long explanation. " * 5}
        for i in range(4)
    }
    schema = {"type": "object", "properties": properties, "required": ["parameter_0"]}
    return [FunctionDef(f"tool_{i}", text, schema) for i in range(count)]


def test_plain_turns_stay_as_they_are():
    turns = build_turns(request([{"role": "user", "content": "hi"}]), FORMAT)
    assert turns == [{"role": "user", "content": "hi"}]


def test_system_and_developer_turns_are_merged_in_front():
    turns = build_turns(
        request(
            [
                {"role": "system", "content": [{"type": "text", "text": "A"}]},
                {"role": "user", "content": "u"},
                {"role": "developer", "content": "B"},
                {"role": "system", "content": ""},
            ]
        ),
        FORMAT,
    )
    assert turns == [{"role": "system", "content": "A\n\nB"}, {"role": "user", "content": "u"}]


def test_a_whole_tool_conversation():
    call = {"id": "c1", "type": "function"}
    turns = build_turns(
        request(
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {**call, "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
                        {**call, "function": {"name": "weather", "arguments": ""}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "no"}]},
                {"role": "assistant", "content": "Fine."},
            ],
            tools=tools(WEATHER),
        ),
        FORMAT,
    )
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user", "assistant"]
    assert turns[1]["content"] == "ab"
    assert turns[2]["content"] == (
        '<tool_call>[{"name": "weather", "arguments": {"city": "Rome"}}, '
        '{"name": "weather", "arguments": {}}]</tool_call>'
    )
    assert turns[3]["content"] == (
        "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nno\n</tool_response>"
    )


def test_tools_stand_in_the_system_turn_as_json():
    turns = build_turns(
        request(
            [{"role": "system", "content": "Be $brief."}, {"role": "user", "content": "u"}],
            tools=tools(WEATHER),
        ),
        FORMAT,
    )
    system = turns[0]["content"]
    assert system.startswith("Be $brief.\n\n")
    shown = system[system.index("<tools>") + 7 : system.index("</tools>")]
    assert json.loads(shown) == [WEATHER]
    assert '<tool_call>[{"name": "tool_name", "arguments": {"argument": "value"}}]' in system


@pytest.mark.parametrize(
    "more", [{}, {"tools": []}, {"tools": tools(WEATHER), "tool_choice": "none"}]
)
def test_no_callable_tool_means_no_tool_text(more):
    turns = build_turns(request([{"role": "user", "content": "u"}], **more), FORMAT)
    assert turns == [{"role": "user", "content": "u"}]


def test_an_image_is_refused_by_name():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
    ]
    with pytest.raises(InvalidRequest) as caught:
        build_turns(request(messages), FORMAT)
    assert caught.value.param == "messages[1].content[1]"


def test_arguments_that_are_no_json_are_shown_as_a_string():
    torn = {"function": {"name": "f", "arguments": '{"a'}}
    turns = build_turns(
        request([{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [torn]}]),
        FORMAT,
    )
    assert turns[1]["content"].endswith('[{"name": "f", "arguments": "{\\"a"}]</tool_call>')


def test_the_ladder_gets_shorter_and_the_first_rung_that_fits_is_taken():
    functions = many(25)
    texts = [rung(functions) for rung in LADDER]
    sizes = [len(text) for text in texts]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)
    for text, size in zip(texts, sizes, strict=True):
        assert show_tools(functions, size) == text
    assert show_tools(functions, 10) == texts[-1]
    assert sizes[-1] < 2600
    for text in texts:
        assert all(f.name in text for f in functions)


def test_short_forms_keep_names_types_and_requirements():
    function = FunctionDef(WEATHER["name"], WEATHER["description"], WEATHER["parameters"])
    assert signature(function) == (
        'weather(city: string, description?: "short"|"long", days?: integer[])'
    )
    _, brief, lines, _ = (rung([function]) for rung in LADDER)
    shown = json.loads(brief)[0]
    assert shown["description"] == "Look up the weather."
    assert shown["parameters"]["properties"] == {
        "city": {"type": "string"},
        "description": {"enum": ["short", "long"]},
        "days": {"type": "array", "items": {"type": "integer"}},
    }
    assert lines.strip().endswith("): Look up the weather.")


def test_signatures_survive_odd_schemas():
    assert signature(FunctionDef("f")) == "f()"
    odd = {"properties": {"a": True, "b": {"anyOf": [{"const": 1}, {"type": ["null", "string"]}]}}}
    assert signature(FunctionDef("f", None, odd)) == "f(a?: any, b?: 1|null|string)"


def test_first_sentences():
    assert first_sentence("Reads v1.2 files. Then more.") == "Reads v1.2 files."
    assert first_sentence("One line\nnext") == "One line"
    assert first_sentence(None) == ""
    assert len(first_sentence("word " * 99)) == 120


@pytest.mark.parametrize(
    ("wanted", "context_tokens", "chars"),
    [
        ("auto", 8192, 6144),
        ("auto", 16383, 12287),
        ("auto", 16384, None),
        ("full", 2048, None),
        ("short", 8192, 6144),
        ("short", 131072, 16000),
    ],
)
def test_small_contexts_get_short_tools_unless_asked_otherwise(wanted, context_tokens, chars):
    found = budget_chars(wanted, 16000, context_tokens)
    assert found == chars if chars else found > 10**9


def test_what_the_short_text_saves_is_counted():
    functions = [{"name": f.name, "parameters": f.parameters} for f in many(9)]
    asked = request([{"role": "user", "content": "u"}], tools=tools(*functions))
    short = replace(FORMAT, tools_budget_chars=900)
    whole = replace(FORMAT, tools_budget_chars=10**9)
    difference = len(tools_text(asked, whole)) - len(tools_text(asked, short))
    assert tools_saved_chars(asked, short) == difference > 5000
    assert tools_saved_chars(asked, whole) == 0


@pytest.mark.parametrize("rung", LADDER)
def test_every_step_of_the_ladder_keeps_names_and_what_is_required(rung):
    functions = [FunctionDef(**WEATHER), *many(3)]
    text = rung(functions)
    for function in functions:
        assert function.name in text
        assert function.parameters is not None
        for key in function.parameters["required"]:
            assert key in text


def test_short_tools_leave_the_demand_on_the_answer_alone():
    """The mask and the check take the client's schemas, whatever the model was shown."""
    asked = request([{"role": "user", "content": "u"}], tools=tools(WEATHER))
    shown = tools_text(asked, replace(FORMAT, tools_budget_chars=10))
    assert "enum" not in shown
    spec = output_spec(asked, replace(FORMAT, tools_budget_chars=10))
    assert spec is not None
    assert replace(spec, format=FORMAT) == output_spec(asked, FORMAT)


def test_half_a_surrogate_in_an_old_call_does_not_end_the_conversation():
    call = {"id": "a", "function": {"name": "f", "arguments": '{"a":"\\ud83d"}'}}
    turns = build_turns(request([{"role": "assistant", "tool_calls": [call]}]), FORMAT)
    assert "\ufffd" in turns[0]["content"]
    assert turns[0]["content"].encode()
