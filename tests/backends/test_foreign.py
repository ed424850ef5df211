"""How other servers spell usage and acceptance, and what we make of it."""

from __future__ import annotations

import json

import pytest
from msgspec import UNSET

from agentspec.backends.base import Turn
from agentspec.backends.foreign import decode, to_chunk, to_response
from agentspec.backends.http import api_base
from agentspec.backends.verdict import anthropic_error, error_from_answer, error_from_event
from agentspec.wire.chat import decode_request
from agentspec.wire.errors import UpstreamFailed, http_status
from agentspec.wire.messages_errors import anthropic_body, anthropic_status
from tests.gateway.scripts import NO_ROOM

REQUEST = decode_request(b'{"model":"mine","messages":[{"role":"user","content":"x"}]}')
TURN = Turn(id="1", request=REQUEST, body={}, upstream_model="theirs", created_s=9)


def test_a_sparse_chunk_is_completed():
    """id, object, created, index, usage details: all of it may be missing."""
    delta = {"reasoning": "hm", "tool_calls": [{"id": "", "function": {"arguments": "{"}}]}
    raw = {"choices": [{"delta": delta}], "usage": {"prompt_tokens": 3}}
    chunk = to_chunk(decode(json.dumps(raw).encode()), TURN)
    assert (chunk.id, chunk.model, chunk.created) == ("chatcmpl-1", "mine", 9)
    found = chunk.choices[0].delta
    assert found.reasoning_content == "hm" and found.content is UNSET
    assert found.tool_calls and (found.tool_calls[0].index, found.tool_calls[0].id) == (0, None)
    assert chunk.usage and (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) == (3, 0)


def test_empty_tool_calls_are_no_tool_calls():
    chunk = to_chunk(decode(b'{"choices":[{"delta":{"content":"x","tool_calls":[]}}]}'), TURN)
    assert chunk.choices[0].delta.tool_calls is None


def test_a_whole_answer():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"}
    raw = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    answer = to_response(decode(json.dumps(raw).encode()), TURN)
    found = answer.choices[0].message
    assert found.tool_calls is not UNSET and found.tool_calls[0].function.name == "f"
    assert found.reasoning_content == "hm" and answer.usage is None


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"choices": 3}', b"<html>"])
def test_what_is_no_answer(raw):
    with pytest.raises(UpstreamFailed):
        to_response(decode(raw), TURN)


def test_an_answer_without_choices():
    with pytest.raises(UpstreamFailed):
        to_response(decode(b"{}"), TURN)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no"}}', "no"),
        (b'{"error": "no"}', "no"),
        (b'{"object": "error", "message": "no", "code": 400}', "no"),
        (b'{"detail": "no"}', "no"),
        (b"plain words", "plain words"),
        (b"{}", "Backend 'b' answered 422."),
        (b"\xff", "�"),
    ],
)
def test_error_bodies(body, message):
    error = error_from_answer("b", 422, {}, body)
    assert error.message == message and http_status(error) == 422


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 10 tokens.",  # vLLM
        "Requested token count exceeds the model's maximum context length",  # SGLang
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        "the request exceeds the available context size (4096 tokens)",  # llama.cpp
    ],
)
def test_context_errors_get_the_code_that_agents_look_for(words):
    body = json.dumps({"error": {"message": words, "code": 400}}).encode()
    assert error_from_answer("b", 400, {}, body).code == "context_length_exceeded"


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_was_given_up_is_no_answer(reason):
    choice = {"index": 0, "delta": {"content": "x"}, "message": {}, "finish_reason": reason}
    answer = decode(json.dumps({"choices": [choice]}).encode())
    for read in (to_chunk, to_response):
        with pytest.raises(UpstreamFailed, match=reason):
            read(answer, TURN)


@pytest.mark.parametrize(
    ("told", "known"),
    [
        ("STOP", "stop"),
        ("COMPLETE", "stop"),
        ("MAX_TOKENS", "length"),
        ("repetition", "length"),
        ("model_context_window_exceeded", "length"),
        ("Tool_Calls", "tool_calls"),
        ("sensitive", "content_filter"),
        ("RECITATION", "content_filter"),
        ("content_filter: PROHIBITED", "content_filter"),
    ],
)
def test_ends_in_other_words(told: str, known: str):
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": told}
    answer = decode(json.dumps({"choices": [choice]}).encode())
    assert to_response(answer, TURN).choices[0].finish_reason == known
    assert to_chunk(answer, TURN).choices[0].finish_reason == known


LOGPROBS = [
    {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": None}]}]},
    {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{"b": None}], "text_offset": [0]},
]


@pytest.mark.parametrize("told", LOGPROBS)
def test_log_probabilities_with_gaps_and_in_the_old_shape(told):
    choice = {"message": {"content": "a"}, "finish_reason": "stop", "logprobs": told}
    answer = decode(json.dumps({"choices": [choice]}).encode())
    for read in (to_chunk, to_response):
        found = read(answer, TURN).choices[0].logprobs
        assert found is not None and found.content is not None
        (token,) = found.content
        assert (token.token, token.logprob, token.bytes) == ("a", -1.0, None)
        assert [(top.token, top.logprob) for top in token.top_logprobs] == [("b", -9999.0)]


@pytest.mark.parametrize(
    "told", [None, [], {}, "x", {"content": None}, {"content": [{"token": "a"}]}, {"tokens": ["a"]}]
)
def test_odd_log_probabilities_spoil_no_answer(told):
    choice = {"message": {"content": "a"}, "finish_reason": "stop", "logprobs": told}
    answer = decode(json.dumps({"choices": [choice]}).encode())
    assert to_response(answer, TURN).choices[0].message.content == "a"


def test_arguments_that_come_as_an_object():
    call = {"function": {"name": "f", "arguments": {"a": [1, None]}}}
    choice = {"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    answer = decode(json.dumps({"choices": [choice]}).encode())
    calls = to_response(answer, TURN).choices[0].message.tool_calls
    assert calls is not UNSET
    assert json.loads(calls[0].function.arguments or "") == {"a": [1, None]}


def test_an_output_limit_that_is_too_large_is_no_prompt_that_is_too_long():
    error = error_from_answer("b", 400, {}, json.dumps({"message": NO_ROOM}).encode())
    assert error.code == "upstream_error"


def test_headers_that_cannot_be_sent_on_are_left_out():
    headers = {"Retry-After": "7\u2007s", "x-should-retry": "true"}
    assert error_from_answer("b", 429, headers, b"").headers == {"x-should-retry": "true"}


def test_an_overload_in_anthropics_status():
    error = error_from_answer("b", 529, {}, b'{"error": {"message": "Full."}}')
    assert (http_status(error), anthropic_status(error)) == (503, 529)
    assert anthropic_body(error)["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("quote", ["litellm.X: AnthropicException - {}", "{}. Handle with `x`."])
def test_anthropics_body_is_found_in_what_litellm_makes_of_it(quote):
    body = {"type": "error", "error": {"type": "overloaded_error", "message": 'it\'s "full"'}}
    raw = json.dumps(body)
    assert anthropic_error(quote.format(raw)) == body
    assert anthropic_error(quote.format(raw.encode())) == body
    assert anthropic_error(quote.format("{not json}")) is None


def test_an_error_in_a_stream():
    assert http_status(error_from_event("b", {"message": "x", "code": 429})) == 429
    assert http_status(error_from_event("b", "x")) == 502


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/v1/", "https://h/v1"),
        ("https://h/openai/v4", "https://h/openai/v4"),
    ],
)
def test_the_api_lies_below_the_url(url, base):
    assert api_base(url) == base
