"""The judges of ``bench replay``: right answers pass, each fault is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec.bench import judge, judge_items, replay

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
}
MESSAGES = {
    "model": "m",
    "messages": CHAT["messages"],
    "tools": [{"name": "f", "input_schema": SCHEMA}],
}


def chat_stream(arguments: str, *ends: str, done: bool = True) -> bytes:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"tool_calls": [call]}, None)]
    deltas += [({}, end) for end in ends]
    head = {"id": "x", "created": 1, "model": "m"}
    chunks = [head | {"choices": [{"index": 0, "delta": d, "finish_reason": r}]} for d, r in deltas]
    chunks.append(head | {"choices": [], "usage": USAGE})
    raw = b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks)
    return raw + (b"data: [DONE]\n\n" if done else b"")


def named(events: list[dict[str, Any]]) -> bytes:
    lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
    return "".join(lines).encode()


def messages_events(partial: str = '{"n": 1}') -> list[dict[str, Any]]:
    usage = {"input_tokens": 3, "output_tokens": 0}
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    head = {"type": "message", "role": "assistant", "content": [], "usage": usage}
    delta = {"type": "input_json_delta", "partial_json": partial}
    return [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]


def test_a_right_chat_stream():
    judged = judge.judge(judge.chat, CHAT | {"stream": True}, chat_stream('{"n": 1}', "tool_calls"))
    assert judged.calls == [("c", "f", '{"n": 1}')] and judged.finish == "tool_calls"
    assert (judged.prompt_tokens, judged.completion_tokens) == (3, 2)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (chat_stream('{"n": 1}', "tool_calls", done=False), "DONE"),
        (chat_stream('{"n": "1"}', "tool_calls"), "f: "),
        (chat_stream('{"n": ', "tool_calls"), "f: "),
        (chat_stream('{"n": 1}', "tool_calls", "stop"), "goes on"),
        (chat_stream('{"n": 1}'), "finish_reason None"),
        (chat_stream('{"n": 1}', "tool_calls")[:-1], "inside an event"),
        (b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n', "error chunk"),
        (b"data: {}\n\ndata: [DONE]\n\n", "unreadable"),
        (b"", "empty"),
    ],
)
def test_faults_of_a_chat_stream(raw, why):
    with pytest.raises(judge.Wrong, match=why):
        judge.judge(judge.chat, CHAT | {"stream": True}, raw)


def test_messages_in_order():
    body = MESSAGES | {"stream": True}
    right = messages_events()
    assert judge.judge(judge_items.messages, body, named(right)).finish == "tool_use"
    for wrong in (
        right[:-1],
        right[:3] + right[4:],
        [*right, right[-1]],
        right[:1] + right[2:],
        messages_events('{"n": '),
        messages_events('{"m": 1}'),
        [*right[:4], {"type": "error", "error": {}}],
    ):
        with pytest.raises(judge.Wrong):
            judge.judge(judge_items.messages, body, named(wrong))


def error(code: str | None, message: str = "x", **more: Any) -> bytes:
    return json.dumps({"error": {"code": code, "message": message} | more}).encode()


PICTURE = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}


@pytest.mark.parametrize(
    ("surface", "body", "raw", "why"),
    [
        ("chat", {}, error("context_length_exceeded"), "context_length_exceeded"),
        ("messages", {}, error(None, "prompt is too long: 9 tokens > 8 maximum"), "context"),
        ("messages", {"thread": {}}, error(None, details={"error_code": "thread_unsup"}), "thread"),
        ("chat", PICTURE, error("unsupported_content", "no image here"), "images"),
        ("embeddings", {}, error("unsupported_model"), "no embeddings"),
        ("chat", {}, error("unsupported_content", "no image here"), ""),
        ("chat", {}, error("unsupported_model"), ""),
        ("chat", {}, b"<html>", ""),
    ],
)
def test_right_refusals(surface, body, raw, why):
    found = replay.right_refusal(surface, body, 400, raw)
    assert found.startswith(why) and bool(found) == bool(why)
    assert replay.right_refusal(surface, body, 500, raw) == ""


def test_a_cap_shortens_and_never_lengthens():
    assert replay.limited("responses", {}, 8) == {"max_output_tokens": 8}
    assert replay.limited("chat", {"max_completion_tokens": 4}, 8) == {"max_completion_tokens": 4}
    assert replay.limited("embeddings", {}, 8) == {}
