"""What the events of a check say: whole calls, torn ones, streams that end too soon."""

from __future__ import annotations

import pytest

from agentspec.connect.calls import PROTOCOLS, Seen

DONE = {"type": "[DONE]"}


def chat(*deltas: dict, finish: str | None = "tool_calls") -> list[dict]:
    choices = [{"delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": finish})
    return [{"choices": [choice]} for choice in choices]


def call(index: int, arguments: str) -> dict:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def block(index: int, text: str) -> dict:
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def item(arguments: str) -> dict:
    made = {"type": "function_call", "arguments": arguments}
    return {"type": "response.output_item.done", "item": made}


STOP, COMPLETED = {"type": "message_stop"}, {"type": "response.completed"}


@pytest.mark.parametrize(
    ("surface", "events", "seen"),
    [
        ("chat", [*chat(call(0, '{"a"'), call(0, ": 1}")), DONE], Seen(True, True)),
        ("chat", [*chat(call(0, "{}"), call(1, '{"a": 1}')), DONE], Seen(True, True)),
        ("chat", [*chat(call(0, "{}"), call(1, '{"a')), DONE], Seen(True, False)),
        ("chat", [*chat(call(0, "[1]")), DONE], Seen(True, False)),
        ("chat", chat(call(0, "{}")), Seen(False, True)),
        ("chat", [*chat(call(0, "{}"), finish=None), DONE], Seen(False, True)),
        ("chat", [*chat({"content": "hi"}, finish="stop"), DONE], Seen(True, False)),
        ("messages", [block(0, ""), block(0, "{}"), block(1, '{"a": 2}'), STOP], Seen(True, True)),
        ("messages", [block(0, '{"a'), STOP], Seen(True, False)),
        ("messages", [block(0, "{}")], Seen(False, True)),
        ("responses", [item('{"a": 1}'), COMPLETED], Seen(True, True)),
        ("responses", [item('{"a'), COMPLETED], Seen(True, False)),
        ("responses", [item("{}")], Seen(False, True)),
        ("responses", [], Seen(False, False)),
    ],
)
def test_what_the_events_say(surface, events, seen):
    assert PROTOCOLS[surface].read(events) == seen


@pytest.mark.parametrize("surface", PROTOCOLS)
def test_a_body_asks_for_one_call_or_none(surface):
    with_tool, without = (PROTOCOLS[surface].body("m", tools) for tools in (True, False))
    assert with_tool["stream"] and len(with_tool["tools"]) == 1 and "tool_choice" in with_tool
    assert "tools" not in without and "tool_choice" not in without
