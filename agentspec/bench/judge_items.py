"""Judges of the two protocols that answer in items: Responses and Anthropic Messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentspec.wire.messages import decode_request
from agentspec.wire.messages_in import translate
from agentspec.wire.names import flat
from agentspec.wire.responses_tools import ToolSet

from .judge import Judged, check_calls, data_of, need

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_STOPS = ("end_turn", "max_tokens", "tool_use", "stop_sequence", "refusal")


def _named(raw: bytes) -> list[dict[str, Any]]:
    """The events, each under the name that its data repeats."""
    names = [line[7:] for line in raw.decode().split("\n") if line.startswith("event: ")]
    found = [json.loads(data) for data in data_of(raw)]
    need(names == [event["type"] for event in found], "names of events that differ from their type")
    return found


def responses(body: dict[str, Any], raw: bytes) -> Judged:
    """Responses: items opened and closed in order, one terminal event, which holds them all."""
    value = _responses_stream(_named(raw)) if body.get("stream") else json.loads(raw)
    status = value["status"]
    need(status in ("completed", "incomplete"), f"status {status!r}: {value.get('error')}")
    usage = value["usage"]
    need(type(usage["input_tokens_details"]["cached_tokens"]) is int, "cached_tokens")
    need(type(usage["output_tokens_details"]["reasoning_tokens"]) is int, "reasoning_tokens")
    tools = ToolSet()
    given = body.get("input")
    for item in given if isinstance(given, list) else ():
        if item.get("type") == "additional_tools":
            tools.add(_raws(item["tools"]), "input")
    tools.add(_raws(body.get("tools") or []), "tools")
    calls = [_call(item) for item in value["output"] if item["type"].endswith("_call")]
    check_calls(tools.tools, calls)
    return Judged(status, calls, usage["input_tokens"], usage["output_tokens"])


def compaction(body: dict[str, Any], raw: bytes) -> Judged:
    value = json.loads(raw)
    need(value["object"] == "response.compaction", f"object {value['object']!r}")
    need([item["type"] for item in value["output"]] == ["compaction"], "not one compaction item")
    usage = value["usage"]
    return Judged("completed", [], usage["input_tokens"], usage["output_tokens"])


def _raws(tools: list[Any]) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(tool)) for tool in tools]


def _call(item: dict[str, Any]) -> tuple[str, str, str]:
    name = flat(item["name"], item.get("namespace"))
    if item["type"] == "custom_tool_call":
        return item["call_id"], name, json.dumps({"input": item["input"]})
    return item["call_id"], name, item["arguments"]


def _responses_stream(events: list[dict[str, Any]]) -> dict[str, Any]:
    need([e["sequence_number"] for e in events] == list(range(len(events))), "sequence numbers")
    kinds = [event["type"] for event in events]
    need(kinds[:2] == ["response.created", "response.in_progress"], f"begins with {kinds[:2]}")
    need([k for k in kinds if k in _ENDS] == kinds[-1:], "not one terminal event at the end")
    items: list[dict[str, Any]] = []
    opened: dict[str, Any] | None = None
    for event in events[2:-1]:
        need(event["output_index"] == len(items), f"output_index of {event['type']}")
        if event["type"] == "response.output_item.added":
            need(opened is None, "an item opened inside another")
            opened = event["item"]
        elif event["type"] == "response.output_item.done":
            need(opened is not None and opened["id"] == event["item"]["id"], "the wrong item ends")
            items.append(event["item"])
            opened = None
        else:
            need(opened is not None and opened["id"] == event["item_id"], "a delta of no open item")
    end = events[-1]["response"]
    if end["status"] != "failed":
        need(opened is None, "an item that never ends")
        need(end["output"] == items, "the last event's items differ from those streamed")
    return end


def messages(body: dict[str, Any], raw: bytes) -> Judged:
    """Messages: one block open at a time, under rising indexes; one ``message_stop``."""
    value = _messages_stream(_named(raw)) if body.get("stream") else json.loads(raw)
    need(value["type"] == "message" and value["role"] == "assistant", "not an assistant's message")
    reason = value["stop_reason"]
    need(reason in _STOPS, f"stop_reason {reason!r}")
    uses = [block for block in value["content"] if block["type"] == "tool_use"]
    need(reason != "tool_use" or uses, "stop_reason tool_use without a call")
    request = translate(decode_request(msgspec.json.encode(body)), strip_billing=True).request
    calls = [(use["id"], flat(use["name"]), json.dumps(use["input"])) for use in uses]
    check_calls(request.tools or [], calls)
    usage = value["usage"]
    return Judged(reason, calls, usage["input_tokens"], usage["output_tokens"])


def _messages_stream(events: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = [event["type"] for event in events]
    need(kinds[-1] != "error", f"error event {events[-1]}")
    need(kinds[0] == "message_start" and kinds.count("message_start") == 1, "not one message_start")
    need(kinds[-2:] == ["message_delta", "message_stop"], f"ends with {kinds[-2:]}")
    need(kinds.count("message_stop") == kinds.count("message_delta") == 1, "more than one end")
    message = events[0]["message"]
    blocks: list[dict[str, Any]] = []
    partial: list[str] | None = None
    for event in events[1:-2]:
        if event["type"] == "ping":
            continue
        if event["type"] == "content_block_start":
            need(partial is None and event["index"] == len(blocks), "a block opened inside another")
            blocks.append(event["content_block"])
            partial = []
            continue
        need(partial is not None and event["index"] == len(blocks) - 1, "an event of no open block")
        assert partial is not None
        if event["type"] == "content_block_stop":
            if blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = json.loads("".join(partial) or "{}")
            partial = None
        else:
            partial.append(event["delta"].get("partial_json", ""))
    need(partial is None, "a block that never ends")
    end = events[-2]
    usage = message["usage"] | end["usage"]
    return message | {"content": blocks, "usage": usage} | end["delta"]
