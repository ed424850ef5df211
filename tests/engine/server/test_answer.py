"""Outputs -> text, calls and finish reasons: what a client gets whatever the steps cut where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.answer import Answer
from agentspec.engine.chunks import ChunkWriter
from agentspec.engine.request import Output, TokenInfo
from agentspec.wire.chat import ChatResponse, Choice, decode_request, encode
from agentspec.wire.errors import GenerationFailed, InternalError, UpstreamTimeout
from tests.engine.server.fakes import FORMAT, MODEL, planner, report, says

HI = [{"role": "user", "content": "hi"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("ls", path={"type": "string"}),
    tool("sum", xs={"type": "array", "uniqueItems": True}),
]
LS = FORMAT.render_calls([("ls", '{"path": "/tmp"}')])
BOTH = FORMAT.render_calls([("ls", '{"path": "é<tool_call>"}'), ("sum", '{"xs": [1, 2]}')])
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
JSON_N = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}


def answered(outputs: list[Output], **fields: Any) -> tuple[ChatResponse, list[dict[str, Any]]]:
    """(whole answer, chunks as decoded JSON) of one choice."""
    turn = planner().plan(decode_request(encode({"model": MODEL, "messages": HI} | fields)), 0.0)
    answer, writer = Answer(turn), ChunkWriter(turn)
    chunks = []
    for output in outputs:
        output.id = turn.sequences[0].id
        chunks += writer.piece(*answer.read(output))
    chunks += writer.end(*answer.totals())
    return answer.response(), [json.loads(encode(chunk)) for chunk in chunks]


def only(outputs: list[Output], **fields: Any) -> Choice:
    return answered(outputs, **fields)[0].choices[0]


def names(choice: Choice) -> list[tuple[str | None, Any]]:
    calls = choice.message.tool_calls or []
    return [(c.function.name, json.loads(c.function.arguments or "")) for c in calls]


def fold(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream's chunks put together, by the rules that clients follow."""
    message: dict[str, Any] = {"content": None, "calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["calls"]):
                    assert call["id"] and call["type"] == "function"
                    message["calls"].append([call["id"], call["function"]["name"], ""])
                message["calls"][call["index"]][2] += call["function"]["arguments"]
            message["finish_reason"] = choice["finish_reason"]
    return message


def test_text_is_passed_on_as_it_is():
    choice = only(says("  a ", "é\n"))
    assert (choice.message.content, choice.finish_reason) == ("  a é\n", "stop")
    assert only(says("")).message.content == ""


def test_markup_is_text_where_no_tools_are():
    assert only(says(LS)).message.content == LS


def test_calls_alone_leave_content_null():
    choice = only(says("\n" + BOTH + "\n"), tools=TOOLS)
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"
    assert names(choice) == [("ls", {"path": "é<tool_call>"}), ("sum", {"xs": [1, 2]})]


def test_text_beside_calls_is_content():
    choice = only(says("I look.\n" + LS), tools=TOOLS)
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")


def test_a_named_choice_ends_with_stop():
    named = {"type": "function", "function": {"name": "ls"}}
    choice = only(says(LS), tools=TOOLS, tool_choice=named)
    assert (len(names(choice)), choice.finish_reason) == (1, "stop")


BOTH_CALLS = [("ls", {"path": "é<tool_call>"}), ("sum", {"xs": [1, 2]})]


@given(cut=st.integers(1, len(BOTH) - 1))
def test_a_torn_call_is_dropped_and_leaks_nothing(cut: int):
    response, _ = answered(says("Sure. " + BOTH[:cut], finish="length"), tools=TOOLS)
    choice = response.choices[0]
    assert choice.finish_reason == "length"
    ends = [BOTH.index(', {"name": "sum"'), BOTH.index("]</tool_call>", 60)]
    whole = [call for call, end in zip(BOTH_CALLS, ends, strict=True) if end <= cut]
    assert names(choice) == whole
    # One character of the marker alone may as well be text.
    assert (choice.message.content or "").strip() == ("Sure. <" if cut == 1 else "Sure.")


@pytest.mark.parametrize("pieces", [(LS,), tuple(LS), (LS, "")])
def test_a_call_that_the_close_out_guard_shut_is_dropped(pieces):
    """Its JSON is whole, but the model had not finished it; running half a command does harm."""
    response, _ = answered(says(*pieces, closed_out=True), tools=TOOLS)
    assert names(response.choices[0]) == []
    assert response.choices[0].finish_reason == "length"
    assert response.agentspec and response.agentspec.tool_calls_dropped == 1


def test_a_call_that_is_whole_at_the_limit_is_given():
    choice = only(says(LS, finish="length"), tools=TOOLS)
    assert ([name for name, _ in names(choice)], choice.finish_reason) == (["ls"], "length")


def test_a_json_answer_that_was_shut_says_length():
    choice = only(says('{"n": 1}', closed_out=True), response_format=JSON_N)
    assert (choice.message.content, choice.finish_reason) == ('{"n": 1}', "length")


def test_a_finished_call_before_a_torn_one_is_given():
    text = BOTH[: BOTH.index('"arguments"', BOTH.index("sum"))]
    response, _ = answered(says(text, finish="length"), tools=TOOLS)
    assert [name for name, _ in names(response.choices[0])] == ["ls"]
    assert response.agentspec
    report = response.agentspec
    assert (report.tool_calls_valid, report.tool_calls_dropped) == (1, 1)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (FORMAT.render_calls([("sum", '{"xs": [1, 1]}')]), {}),
        (FORMAT.render_calls([("ls", "{}")]), {}),
        (FORMAT.render_calls([("rm", "{}")]), {}),
        ("no call", {"tool_choice": "required"}),
        ("no JSON", {"response_format": JSON_N}),
        ('{"n": "x"}', {"response_format": JSON_N, "tools": []}),
        ("[1]", {"response_format": {"type": "json_object"}, "tools": []}),
    ],
)
def test_what_breaks_its_constraint_is_never_passed_on(text: str, fields: dict[str, Any]):
    with pytest.raises(GenerationFailed) as failed:
        answered(says(text), **{"tools": TOOLS} | fields)
    assert failed.value.code == "constraint_not_met"


def test_a_schema_that_was_too_hard_is_told_from_a_failure_of_the_engine():
    ended = [Output(id="", finish_reason="error", error="ConstraintUnmet: no right end was found")]
    with pytest.raises(GenerationFailed) as failed:
        answered(ended, response_format=JSON_N)
    assert failed.value.code == "constraint_not_met"
    ended = [Output(id="", finish_reason="error", error="ConstraintViolated: token 3")]
    with pytest.raises(InternalError):
        answered(ended, response_format=JSON_N)


@pytest.mark.parametrize("marker", ["", "<tool_call>[", LS])
def test_a_json_answer_may_hold_markup(marker: str):
    text = json.dumps({"n": 1, "s": marker})
    choice = only(says(*text), response_format=JSON_N, tools=TOOLS)
    assert (choice.message.content, choice.finish_reason) == (text, "stop")
    choice = only(says(text), response_format=JSON_N)
    assert choice.message.content == text


def test_calls_instead_of_a_json_answer():
    choice = only(says(*LS), response_format=JSON_N, tools=TOOLS)
    assert (names(choice), choice.message.content) == ([("ls", {"path": "/tmp"})], None)


def test_a_cut_json_answer_is_given_as_it_is():
    choice = only(says('{"n": ', finish="length"), response_format=JSON_N)
    assert (choice.message.content, choice.finish_reason) == ('{"n": ', "length")


def test_calls_that_may_not_be_made_are_dropped():
    response, _ = answered(says("Fine." + LS), tools=TOOLS, tool_choice="none")
    choice = response.choices[0]
    assert (choice.message.content, choice.finish_reason, names(choice)) == ("Fine.", "stop", [])
    assert response.agentspec and response.agentspec.tool_calls_dropped == 1


@given(
    text=st.sampled_from(
        ["plain text", "a <tool_call> b", "Look:\n" + BOTH, LS, BOTH + "\n", " ", "x\n\n"]
    ),
    cuts=st.lists(st.integers(0, 120), max_size=8),
    finish=st.sampled_from(["stop", "length"]),
    tools=st.booleans(),
)
def test_a_stream_folds_to_the_whole_answer(text, cuts, finish, tools):
    at = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in zip(at, at[1:], strict=False)]
    fields: dict[str, Any] = {"tools": TOOLS} if tools else {}
    response, chunks = answered(says(*pieces, finish=finish), **fields)
    whole, folded = response.choices[0], fold(chunks)
    assert folded["finish_reason"] == whole.finish_reason
    assert (folded["content"] or "") == (whole.message.content or "")
    assert folded["calls"] == [
        [c.id, c.function.name, c.function.arguments] for c in whole.message.tool_calls or []
    ]
    # However the text was cut, the answer is the same.
    at_once = only(says(text, finish=finish), **fields)
    assert at_once.message.content == whole.message.content
    assert names(at_once) == names(whole)


def test_the_chunks_of_a_stream():
    fields = {"tools": TOOLS, "stream": True, "stream_options": {"include_usage": True}}
    response, chunks = answered(says("Look:", LS), **fields)
    assert {(c["id"], c["created"], c["model"], c["object"]) for c in chunks} == {
        (response.id, response.created, MODEL, "chat.completion.chunk")
    }
    text, head, body, end = (chunk["choices"][0] for chunk in chunks[:-1])
    assert text["delta"] == {"role": "assistant", "content": "Look:"}
    (call,) = head["delta"]["tool_calls"]
    id = call.pop("id")
    assert id.startswith("call_") and len(id) > 20
    assert call == {"index": 0, "type": "function", "function": {"name": "ls", "arguments": ""}}
    (rest,) = body["delta"]["tool_calls"]
    assert rest == {"index": 0, "function": {"arguments": '{"path": "/tmp"}'}}
    assert (end["delta"], end["finish_reason"]) == ({}, "tool_calls")
    assert [c["usage"] for c in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == len("Look:" + LS)


def test_a_stream_of_calls_alone_begins_with_null_content():
    _, chunks = answered(says(LS), tools=TOOLS)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[0]["choices"][0]["delta"]["content"] is None


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, 0),
        ({"agentspec": {}}, 1),
        ({"stream_options": {"include_usage": True}}, 1),
        ({"stream_options": {"include_usage": False}}, 0),
    ],
)
def test_who_gets_a_usage_chunk(fields, ends):
    _, chunks = answered(says("x"), **fields)
    last = [chunk for chunk in chunks if not chunk["choices"]]
    assert len(last) == ends
    assert all("agentspec" in chunk and chunk["usage"]["total_tokens"] for chunk in last)


def test_usage_leaves_forced_tokens_out_of_predictions():
    response, _ = answered(says("four", cached_tokens=3), max_tokens=10**6, agentspec={"arm": "on"})
    usage, told = response.usage, response.agentspec
    assert usage and usage.prompt_tokens_details and usage.completion_tokens_details and told
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (9, 4, 13)
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert usage.completion_tokens_details.accepted_prediction_tokens == 4
    assert usage.completion_tokens_details.rejected_prediction_tokens == 2
    assert told.sources == report().sources
    assert (told.steps, told.hist, told.queue_us, told.exact) == (3, [1, 0, 2], 7, True)
    assert (told.arm, told.max_tokens_clamped) == ("on", 4087)


def test_several_choices_are_one_request():
    turn = planner().plan(
        decode_request(encode({"model": MODEL, "messages": HI, "n": 2})), arrival_s=0.0
    )
    answer = Answer(turn)
    for sequence, text, cached in zip(turn.sequences, ("a", "bcd"), (0, 8), strict=True):
        (output,) = says(text, cached_tokens=cached)
        output.id = sequence.id
        answer.read(output)
    response = answer.response()
    assert [(c.index, c.message.content) for c in response.choices] == [(0, "a"), (1, "bcd")]
    usage, told = response.usage, response.agentspec
    assert usage and usage.prompt_tokens_details and told
    assert (usage.prompt_tokens, usage.completion_tokens) == (9, 4)
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert (told.steps, told.hist, told.busy_us.decode) == (6, [2, 0, 4], 40)
    assert told.sources["suffix"].accepted == 8


def test_logprobs_follow_the_text():
    choice = only(says("hé", "!"), logprobs=True, top_logprobs=2)
    assert choice.logprobs and choice.logprobs.content
    assert b"".join(bytes(e.bytes or ()) for e in choice.logprobs.content) == "hé!".encode()
    first = choice.logprobs.content[0]
    assert (first.token, first.logprob, first.bytes) == ("h", -0.5, [104])
    assert [(t.token, t.logprob) for t in first.top_logprobs] == [("h", -0.5), ("A", -1.5)]


def test_logprobs_of_text_outside_the_answer_are_left_out():
    """A stop string's tokens and the end token were sampled, yet are no part of the answer."""
    infos = [TokenInfo(token, -1.0) for token in b"okEND"] + [TokenInfo(256, -0.1)]
    outputs = says("ok", infos=infos)
    choice = only(outputs, logprobs=True)
    assert choice.logprobs and choice.logprobs.content
    assert [entry.token for entry in choice.logprobs.content] == ["o", "k"]


def test_logprobs_show_no_markup():
    for pieces in (("Look. ", LS), ("Look. " + LS,), ("Look. <tool", LS[len("<tool") :])):
        choice = only(says(*pieces), tools=TOOLS, logprobs=True)
        assert choice.logprobs and choice.logprobs.content
        assert "".join(entry.token for entry in choice.logprobs.content) == "Look."


@pytest.mark.parametrize(
    ("reason", "kind"), [("error", InternalError), ("deadline", UpstreamTimeout)]
)
def test_an_end_that_is_no_answer_is_an_error(reason, kind):
    with pytest.raises(kind):
        answered(says("half", finish=reason))
