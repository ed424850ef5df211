"""Requests of Responses and Messages: how a bad field is named, and garbage that must not crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.choice import output_spec
from agentspec.toolcall.format import load_format
from agentspec.wire import completions, messages, messages_in, responses, responses_in
from agentspec.wire.canonical import body_of
from agentspec.wire.errors import AgentspecError, ContextLengthExceeded, InvalidRequest
from agentspec.wire.messages_errors import anthropic_body, anthropic_status
from agentspec.wire.opaque import seal, unseal

HI = [{"role": "user", "content": "hi"}]
TEXT_BLOCK = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}


def from_responses(**fields: Any):
    asked = responses.decode_request(json.dumps({"model": "m", "input": "hi"} | fields).encode())
    return responses_in.translate(asked)


def from_messages(**fields: Any):
    body = json.dumps({"model": "m", "messages": HI} | fields).encode()
    return messages_in.translate(messages.decode_request(body), strip_billing=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 3}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"text": 3}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": []}, "input"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": 1}]}]},
         "tools[0].tools[0].name"),
        ({"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar",
          "syntax": "lark", "definition": 'start: "(" start ")"'}}]}, "tools[0].format.definition"),
        ({"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar",
          "syntax": "peg"}}]}, "tools[0].format.syntax"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
    ],
)  # fmt: skip
def test_a_bad_field_of_responses_is_named(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        from_responses(**fields)
    assert caught.value.param == param and param in caught.value.message + param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
         "messages[0].content[0].tool_use_id"),
        ({"system": 3}, "system"),
        ({"tool_choice": {"type": "maybe"}, "tools": [{"name": "f", "input_schema": {}}]},
         "tool_choice.type"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
)  # fmt: skip
def test_a_bad_field_of_messages_is_named(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        from_messages(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ({"type": "function", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "function", "name": "t", "namespace": "n"},
         {"type": "function", "function": {"name": "n__t"}}),
        ({"type": "shell"}, {"type": "function", "function": {"name": "shell"}}),
        ({"type": "allowed_tools", "mode": "required",
          "tools": [{"type": "function", "name": "f"}]}, "required"),
    ],
)  # fmt: skip
def test_tool_choices_of_responses(choice, expected):
    tools: list[Any] = [
        {"type": "function", "name": "f"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "t"}]},
        {"type": "shell"},
    ]
    request = from_responses(tools=tools, tool_choice=choice).request
    assert request.tool_choice == expected
    allowed = isinstance(choice, dict) and choice["type"] == "allowed_tools"
    assert len(request.tools or []) == (1 if allowed else 3)


def test_a_free_choice_without_tools_is_left_out():
    tools = [{"type": "web_search"}]
    request = from_responses(tools=tools, tool_choice="auto", parallel_tool_calls=True).request
    assert (request.tools, request.tool_choice, request.parallel_tool_calls) == (None,) * 3
    request = from_messages(tools=[{"type": "web_search_20250305", "name": "w"}]).request
    assert (request.tools, request.tool_choice) == (None, None)


SEARCH = {"type": "web_search"}
CONTAINER = {"type": "shell", "environment": {"type": "container_auto"}}
LISTED = [{"type": "function", "name": "g"}]


@pytest.mark.parametrize("tools", [None, [], [SEARCH], [CONTAINER], [{"type": "tool_search"}]])
@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "g"},
        {"type": "custom", "name": "g"},
        {"type": "web_search"},
        {"type": "shell"},
        {"type": "zork"},
        {"type": "allowed_tools", "mode": "required", "tools": LISTED},
    ],
)
def test_a_forced_choice_of_responses_is_never_left_out(tools, choice):
    with pytest.raises(InvalidRequest) as refused:
        from_responses(tools=tools, tool_choice=choice)
    assert (refused.value.param or "").startswith("tool_choice")
    if choice != "required":
        with pytest.raises(InvalidRequest):
            from_responses(tools=[{"type": "function", "name": "f"}], tool_choice=choice)


def test_what_cannot_be_offered_or_allowed_is_named():
    with pytest.raises(InvalidRequest) as refused:
        from_responses(tools=[{"type": "computer_use_preview", "display_width": 9}])
    assert refused.value.param == "tools[0].type"
    listed = [{"type": "web_search"}, {"type": "function", "name": "zork"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": listed}
    with pytest.raises(InvalidRequest) as refused:
        from_responses(tools=[*LISTED, SEARCH], tool_choice=choice)
    assert refused.value.param == "tool_choice.tools[1]"


SERVED = {"type": "web_search_20250305", "name": "web_search"}
DEFERRED = {"name": "d", "input_schema": {}, "defer_loading": True}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "zork"}}, "tool_choice.type"),
        ({"tools": [SERVED], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [DEFERRED], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [DEFERRED], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [DEFERRED], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tools": [SERVED], "tool_choice": {"type": "tool", "name": "web_search"}},
         "tool_choice.name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "custom", "name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [DEFERRED, DEFERRED]}, "tools[1].name"),
        ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, "tools[0].type"),
        ({"output_format": {"type": "zork"}}, "output_format.type"),
        ({"output_config": {"format": {"type": "zork"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ],
)  # fmt: skip
def test_what_messages_cannot_keep_to_is_refused(more, param):
    with pytest.raises(InvalidRequest) as refused:
        from_messages(**more)
    assert refused.value.param == param
    assert refused.value.message.startswith(param)


def test_tools_of_messages_that_the_client_runs_are_offered():
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "memory_20250818", "name": "memory"},
        SERVED,
        DEFERRED,
    ]
    choice = {"type": "tool", "name": "d"}
    request = from_messages(tools=tools, tool_choice=choice).request
    offered = {tool.function.name: tool.function.parameters or {} for tool in request.tools or ()}
    assert list(offered) == ["bash", "str_replace_based_edit_tool", "memory", "d"]
    bash = ValueChecker(offered["bash"])
    assert bash.check('{"command": "ls"}') is bash.check('{"restart": true}') is None
    assert bash.check("{}") is not None
    assert "rename" in offered["memory"]["properties"]["command"]["enum"]
    assert request.tool_choice == {"type": "function", "function": {"name": "d"}}


def test_left_out_tools_need_no_names_of_their_own():
    toolset = {"type": "mcp_toolset", "mcp_server_name": "s"}
    own = {"name": "web_search", "input_schema": {}}
    for tools in ([toolset, toolset, SERVED, own], [own, SERVED, toolset, toolset]):
        request = from_messages(tools=tools, tool_choice={"type": "any"}).request
        assert [tool.function.name for tool in request.tools or ()] == ["web_search"]


def test_strict_in_anthropics_sense_takes_any_schema():
    schema = {"type": "object", "properties": {"a": {}}, "allOf": [{"required": ["a"]}]}
    tools = [{"name": "f", "input_schema": schema, "strict": True}]
    wanted = {"format": {"type": "json_schema", "schema": schema}}
    request = from_messages(tools=tools, output_config=wanted).request
    assert output_spec(request, load_format("smollm2")) is not None


def test_names_of_tools_of_responses_are_unique():
    for tools in (
        [LISTED[0], LISTED[0]],
        [LISTED[0], {"type": "custom", "name": "g"}],
        [{"type": "namespace", "name": "n", "tools": [LISTED[0], LISTED[0]]}],
        [{"type": "function", "name": "shell"}, {"type": "shell"}],
        [{"type": "shell"}, {"type": "function", "name": "shell"}],
    ):
        with pytest.raises(InvalidRequest, match="unique"):
            from_responses(tools=tools)
    again = [{"type": "additional_tools", "tools": LISTED}, {"role": "user", "content": "x"}]
    assert len(from_responses(tools=LISTED, input=[*again, again[0]]).request.tools or []) == 1


@pytest.mark.parametrize(
    "more", [{"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}]
)
def test_log_probabilities_of_responses_are_refused(more):
    with pytest.raises(InvalidRequest, match="Log prob"):
        from_responses(**more)


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any"}, "required", None),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, None),
    ],
)
def test_tool_choices_of_messages(choice, expected, parallel):
    request = from_messages(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice).request
    assert (request.tool_choice, request.parallel_tool_calls) == (expected, parallel)


def test_results_follow_their_calls_and_pictures_follow_the_results():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "summary": [], "content": [{"text": "b"}]},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "2", "output": [image]},
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
        {"type": "web_search_call", "id": "w", "output": {"odd": 1}},
        {"role": "user", "content": "next"},
    ]
    found = from_responses(input=items).request.messages
    assert [m.role for m in found] == ["assistant", "tool", "tool", "user", "user"]
    assert found[0].reasoning_content == "ab"
    assert [c.id for c in found[0].tool_calls or ()] == ["1", "2"]
    assert isinstance(found[3].content, list) and found[3].content[0].type == "image_url"


def test_the_chat_body_is_spelled_for_other_servers():
    tool = {"type": "function", "name": "f", "parameters": {}, "strict": False}
    schema = {"type": "json_schema", "name": "A", "schema": {"type": "object"}, "strict": True}
    translated = from_responses(tools=[tool], text={"format": schema}, reasoning={"effort": "low"})
    body = json.loads(json.dumps({
        name: json.loads(bytes(raw))
        for name, raw in body_of(translated.request, translated.extras).items()
    }))  # fmt: skip
    assert body["tools"][0]["type"] == "function" and body["tools"][0]["function"]["name"] == "f"
    assert body["response_format"]["json_schema"]["name"] == "A"
    assert body["reasoning_effort"] == "low" and "stream" not in body


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (ContextLengthExceeded.of(9000, 8192).message, "9000 tokens > 8192 maximum"),
        ("maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4900 "
         "tokens from the input", "4900 tokens > 4096 maximum"),
        ("the request exceeds the available context size", "exceeds the available context size"),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_told_in_anthropics_words(words, expected):
    error = InvalidRequest(words, code="context_length_exceeded")
    told = anthropic_body(error)["error"]
    assert told["message"].startswith("prompt is too long: ") and expected in told["message"]
    assert told["type"] == "invalid_request_error" and anthropic_status(error) == 400


@pytest.mark.parametrize("strip", [True, False])
def test_the_billing_line_stays_for_the_vendors_own_models(strip):
    line = "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"
    for system in (f"{line}\nBe brief.", [{"type": "text", "text": line}, TEXT_BLOCK]):
        raw = json.dumps({"model": "m", "messages": HI, "system": system}).encode()
        asked = messages.decode_request(raw)
        said = messages_in.translate(asked, strip_billing=strip).request.messages[0].text()
        assert said.endswith("Be brief.") and (line in said) is not strip


def test_sealed_text_is_read_again_and_foreign_words_are_not():
    assert unseal(seal("é\n🌍")) == "é\n🌍"
    assert [unseal(w) for w in (None, "", "gAAAA", "agentspec1.%%%", "agentspec1.AA")] == [None] * 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "role", "content", "text", "name", "tools", "input", "output"),
                    *("call_id", "arguments", "format", "definition", "syntax", "parameters"),
                    *("tool_use_id", "source", "data", "signature", "thinking", "id", "summary"),
                    *("input_schema", "encrypted_content", "namespace", "schema", "image_url"),
                ]
            ),
            inner
            | st.sampled_from(
                [
                    *("function", "custom", "namespace", "message", "user", "assistant", "text"),
                    *("function_call", "function_call_output", "reasoning", "tool_use", "lark"),
                    *("tool_result", "thinking", "image", "base64", "grammar", "json_schema"),
                    *("additional_tools", "compaction", "item_reference", "document", "tool"),
                ]
            ),
            max_size=5,
        )
    ),
    max_leaves=25,
)
FIELDS = [
    *("input", "messages", "tools", "tool_choice", "instructions", "system", "text", "thinking"),
    *("output_config", "reasoning", "stop_sequences", "metadata", "prompt", "previous_response_id"),
]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5))
def test_any_json_is_translated_or_refused(body):
    """Never another exception, whatever the shape; what is translated can be encoded."""
    raw = json.dumps({"model": "m"} | body).encode()

    def read_responses() -> None:
        done = responses_in.translate(responses.decode_request(raw))
        body_of(done.request, done.extras)

    def read_messages() -> None:
        done = messages_in.translate(messages.decode_request(raw), strip_billing=True)
        body_of(done.request, done.extras)

    def read_completions() -> None:
        body_of(completions.translate(completions.decode_request(raw)))

    for read in (read_responses, read_messages, read_completions):
        try:
            read()
        except AgentspecError as error:
            assert isinstance(error, InvalidRequest)


@pytest.mark.parametrize("wrong", [{"tools": 3}, {"mode": ["auto"]}, {"mode": "some"}])
def test_a_malformed_choice_of_tools_is_refused_by_name(wrong):
    listed = [{"type": "function", "name": "f"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": listed} | wrong
    body = {"model": "m", "input": "hi", "tools": listed, "tool_choice": choice}
    with pytest.raises(InvalidRequest) as caught:
        responses_in.translate(responses.decode_request(json.dumps(body).encode()))
    assert caught.value.param == f"tool_choice.{next(iter(wrong))}"
