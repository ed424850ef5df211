"""Decoding of chat requests: what is accepted, and how a bad field is named."""

import json

import msgspec
import pytest

from agentspec.wire import chat
from agentspec.wire.errors import InvalidRequest

USER = {"role": "user", "content": "hi"}


def decode(**fields):
    return chat.decode_request(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": [{"role": "robot"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1].content", None),
        ({"messages": []}, "messages", "empty_array"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tools": [{"function": {}}]}, "tools[0].function.name", "missing_required_parameter"),
        ({"stream_options": {"include_usage": 3}}, "stream_options.include_usage", None),
        ({"agentspec": {"priority": "x"}}, "agentspec.priority", "invalid_value"),
    ],
)
def test_a_bad_field_is_named(fields, param, code):
    with pytest.raises(InvalidRequest) as caught:
        decode(**fields)
    assert caught.value.param == param
    assert param in caught.value.message
    assert code is None or caught.value.code == code


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"messages": []}', b"null"])
def test_what_is_no_request_is_an_invalid_request(body):
    with pytest.raises(InvalidRequest):
        chat.decode_request(body)


def test_unknown_parameters_are_accepted():
    request = decode(guided_json={"a": 1}, reasoning_effort="low", store=False, metadata={"k": "v"})
    assert request.model == "m"


def test_content_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert decode(messages=[{"role": "user", "content": parts}]).messages[0].text() == "ab"


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({}, None), ({"max_tokens": 5}, 5), ({"max_tokens": 5, "max_completion_tokens": 7}, 7)],
)
def test_the_newer_limit_wins(fields, limit):
    assert decode(**fields).token_limit == limit


def test_an_answer_always_spells_content_and_leaves_out_what_was_not_given():
    answer = json.loads(
        chat.encode(
            chat.ChatResponse(
                id="x", created=1, model="m", choices=[chat.Choice(0, chat.AnswerMessage(), "stop")]
            )
        )
    )
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": None}
    assert "agentspec" not in answer


def test_a_chunk_without_usage_has_no_usage_key_and_one_with_null_keeps_it():
    plain = chat.ChatChunk(id="x", created=1, model="m", choices=[])
    assert "usage" not in json.loads(chat.encode(plain))
    plain.usage = None
    assert json.loads(chat.encode(plain))["usage"] is None


def test_a_request_survives_encoding():
    request = decode(tools=[{"type": "function", "function": {"name": "f"}}], seed=3, stop=["a"])
    again = msgspec.json.decode(chat.encode(request), type=chat.ChatRequest)
    assert again == request


CALL = {"name": "f", "parameters": {}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": [CALL]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"functions": [CALL], "function_call": {"name": "f"}}, "functions"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        (
            {"tools": [{"type": "function", "function": CALL}, {"type": "web_search"}]},
            "tools[1].type",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ],
)
def test_tools_of_another_kind_are_refused_by_name(fields, param):
    with pytest.raises(InvalidRequest) as refused:
        decode(**fields)
    assert refused.value.param == param


@pytest.mark.parametrize("empty", [{"functions": []}, {"functions": None, "function_call": None}])
def test_empty_predecessors_of_tools_are_ignored(empty):
    assert decode(**empty).tools is None


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
         "response_format.json_schema.schema"),
    ],
)  # fmt: skip
def test_what_would_be_ignored_is_refused(more, param):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | more
    with pytest.raises(InvalidRequest) as refused:
        chat.decode_request(chat.encode(body))
    assert refused.value.param == param


def test_an_old_call_of_the_single_kind_is_a_call():
    call = {"name": "f", "arguments": "{}"}
    said = [{"role": "assistant", "content": None, "function_call": call}]
    (message,) = chat.decode_request(chat.encode({"model": "m", "messages": said})).messages
    assert [c.function.name for c in message.tool_calls or ()] == ["f"]
