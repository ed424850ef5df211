"""One small streamed call in each protocol: its body, and what its events say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .base import Surface

Events = Sequence[dict[str, Any]]
_SCHEMA = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}
_ASK = "Are you ready? Report it."
_NAME, _DESCRIPTION = "report", "Report whether you are ready."
_CALL_TOKENS, _TEXT_TOKENS = 128, 8


@dataclass(frozen=True, slots=True)
class Seen:
    """ended: the protocol's last event came. called: the tool, with an object for arguments."""

    ended: bool
    called: bool


@dataclass(frozen=True, slots=True)
class Protocol:
    path: str
    body: Callable[[str, bool], dict[str, Any]]
    read: Callable[[Events], Seen]


def _chat(model: str, tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": _ASK}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": _CALL_TOKENS if tools else _TEXT_TOKENS,
    }
    if tools:
        function = {"name": _NAME, "description": _DESCRIPTION, "parameters": _SCHEMA}
        body["tools"] = [{"type": "function", "function": function}]
        body |= {"tool_choice": "required", "parallel_tool_calls": False}
    return body


def _read_chat(events: Events) -> Seen:
    choices = [choice for event in events for choice in event.get("choices") or []]
    deltas = [c for choice in choices for c in (choice.get("delta") or {}).get("tool_calls") or []]
    pieces = ((c.get("index"), (c.get("function") or {}).get("arguments")) for c in deltas)
    ended = any(choice.get("finish_reason") for choice in choices)
    return Seen(ended and bool(events) and events[-1].get("type") == "[DONE]", _called(pieces))


def _responses(model: str, tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "input": [{"type": "message", "role": "user", "content": _ASK}],
        "stream": True,
        "store": False,
        "max_output_tokens": _CALL_TOKENS if tools else _TEXT_TOKENS,
    }
    if tools:
        tool = {"name": _NAME, "description": _DESCRIPTION, "parameters": _SCHEMA, "strict": False}
        body["tools"] = [{"type": "function", **tool}]
        body |= {"tool_choice": "required", "parallel_tool_calls": False}
    return body


def _read_responses(events: Events) -> Seen:
    items = [e.get("item") or {} for e in events if e.get("type") == "response.output_item.done"]
    called = [i for i in items if i.get("type") == "function_call" and _is_object(i["arguments"])]
    last = events[-1].get("type") if events else None
    return Seen(last in ("response.completed", "response.incomplete"), bool(called))


def _messages(model: str, tools: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": _ASK}],
        "stream": True,
        "max_tokens": _CALL_TOKENS if tools else _TEXT_TOKENS,
    }
    if tools:
        tool = {"name": _NAME, "description": _DESCRIPTION, "input_schema": _SCHEMA}
        body["tools"] = [tool]
        body["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    return body


def _read_messages(events: Events) -> Seen:
    deltas = [e for e in events if e.get("type") == "content_block_delta"]
    pieces = ((e.get("index"), (e.get("delta") or {}).get("partial_json")) for e in deltas)
    last = events[-1].get("type") if events else None
    return Seen(last == "message_stop", _called(pieces))


def _called(pieces: Iterable[tuple[Any, str | None]]) -> bool:
    """Whether the pieces (index of the call, text) make calls whose arguments are all objects."""
    whole: dict[Any, str] = {}
    for index, text in pieces:
        if text:
            whole[index] = whole.get(index, "") + text
    return bool(whole) and all(map(_is_object, whole.values()))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


PROTOCOLS: dict[Surface, Protocol] = {
    "chat": Protocol("/v1/chat/completions", _chat, _read_chat),
    "responses": Protocol("/v1/responses", _responses, _read_responses),
    "messages": Protocol("/v1/messages", _messages, _read_messages),
}
