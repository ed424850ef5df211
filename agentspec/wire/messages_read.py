"""Messages answers as they come from a server that speaks the protocol -> chat chunks.

For what the gateway counts, and for routing; the client of such a server gets its own events. An
unknown event or delta says nothing and is no error: Anthropic adds kinds of both.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import (
    AnswerMessage,
    Delta,
    FunctionCall,
    PromptTokensDetails,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from .errors import UpstreamFailed

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class Event(msgspec.Struct):
    """One event. ``error`` of an ``error`` event is its inner object."""

    type: str
    message: dict[str, Any] | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class MessagesReader:
    """Reads one stream.

    usage: the counts so far; finish_reason, stopped_by: once they have come; ended: the stream has
    said that it is whole.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        self._calls = -1
        self.finish_reason: str | None = None
        self.stopped_by: str | None = None
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        return usage_from(self._counts) if self._counts else None

    def read(self, event: Event) -> Delta | None:
        """What the event adds to the answer; None where it adds nothing."""
        if event.type == "message_start":
            self._count((event.message or {}).get("usage"))
            return Delta(role="assistant", content="")
        if event.type == "content_block_start":
            return self._block(event.content_block or {})
        if event.type == "content_block_delta":
            return self._piece(event.delta or {})
        if event.type == "message_delta":
            self._count(event.usage)
            self.finish_reason, self.stopped_by = ending(event.delta or {})
        if event.type == "message_stop":
            self.ended = True
        return None

    def _count(self, found: Any) -> None:
        """Counts come twice: with the start, and those that are final with the end."""
        if isinstance(found, dict):
            self._counts |= {name: value for name, value in found.items() if value is not None}

    def _block(self, block: dict[str, Any]) -> Delta | None:
        if block.get("type") != "tool_use":
            return None
        self._calls += 1
        function = FunctionCall(name=str(block.get("name") or ""), arguments="")
        head = ToolCallDelta(self._calls, str(block.get("id") or ""), "function", function)
        return Delta(tool_calls=[head])

    def _piece(self, delta: dict[str, Any]) -> Delta | None:
        kind = delta.get("type")
        if kind == "text_delta":
            return Delta(content=str(delta.get("text", "")))
        if kind == "thinking_delta":
            return Delta(reasoning_content=str(delta.get("thinking", "")))
        if kind == "input_json_delta" and self._calls >= 0:
            function = FunctionCall(arguments=str(delta.get("partial_json", "")))
            return Delta(tool_calls=[ToolCallDelta(self._calls, function=function)])
        return None


def ending(fields: dict[str, Any]) -> tuple[str | None, str | None]:
    """(finish reason, stop string) out of ``stop_reason`` and ``stop_sequence``."""
    reason = fields.get("stop_reason")
    stopped_by = fields.get("stop_sequence")
    found = _REASONS.get(reason, "stop") if isinstance(reason, str) else None
    return found, stopped_by if isinstance(stopped_by, str) else None


def usage_from(counts: dict[str, Any]) -> Usage:
    """Counts as OpenAI spells them: all input is the prompt's, read from the cache or not."""
    fresh, read, written, out = (
        _whole(counts.get(name))
        for name in (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        )
    )
    prompt = fresh + read + written
    details = PromptTokensDetails(read)
    if written:
        by_age = counts.get("cache_creation")
        hour = by_age.get("ephemeral_1h_input_tokens") if isinstance(by_age, dict) else 0
        details.cache_write_tokens = written
        details.cache_write_1h_tokens = min(_whole(hour), written)
    return Usage(prompt, out, prompt + out, details)


def _whole(count: object) -> int:
    return count if isinstance(count, int) and count > 0 else 0


def message_from(body: dict[str, Any]) -> AnswerMessage:
    """A whole answer's message. Raises ``UpstreamFailed`` where it has no content."""
    blocks = body.get("content")
    if not isinstance(blocks, list):
        raise UpstreamFailed("The backend's answer holds no content.")
    parts = [block for block in blocks if isinstance(block, dict)]
    message = AnswerMessage(content=_joined(parts, "text") or None)
    thought = _joined(parts, "thinking")
    if thought:
        message.reasoning_content = thought
    calls = [part for part in parts if part.get("type") == "tool_use"]
    if calls:
        message.tool_calls = [
            ToolCall(
                function=FunctionCall(
                    name=str(call.get("name") or ""),
                    arguments=msgspec.json.encode(call.get("input", {})).decode(),
                ),
                id=str(call.get("id") or ""),
            )
            for call in calls
        ]
    return message


def _joined(parts: list[dict[str, Any]], kind: str) -> str:
    return "".join(str(part.get(kind, "")) for part in parts if part.get("type") == kind)
