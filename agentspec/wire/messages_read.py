"""Messages answers as they come from a server that speaks the protocol -> chat chunks.

For what the gateway counts, and for routing; the client of such a server gets its own events. An
unknown event or delta says nothing and is no error: Anthropic adds kinds of both.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .calls import is_object
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

_CUT = ("length", "content_filter")
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
    said that it is whole, and told how it ended.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Any] = {}
        self._calls = -1
        self._input: list[str] | None = None
        self._torn = False
        self.finish_reason: str | None = None
        self.stopped_by: str | None = None
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        return usage_from(self._counts) if self._counts else None

    def read(self, event: Event) -> Delta | None:
        """What the event adds to the answer; None where it adds nothing.

        Raises ``UpstreamFailed`` where the answer says that it is whole and a call in it is torn.
        """
        if event.type == "message_start":
            self._count((event.message or {}).get("usage"))
            return Delta(role="assistant", content="")
        if event.type == "content_block_start":
            return self._block(event.content_block or {})
        if event.type == "content_block_delta":
            return self._piece(event.delta or {})
        if event.type == "content_block_stop":
            self._close()
        if event.type == "message_delta":
            self._count(event.usage)
            reason, stopped_by = ending(event.delta or {})
            self.finish_reason = reason or self.finish_reason
            self.stopped_by = stopped_by or self.stopped_by
            self._close()
            if self._torn and self.finish_reason and self.finish_reason not in _CUT:
                raise _torn()
        if event.type == "message_stop":
            if self.finish_reason is None:
                raise UpstreamFailed("The backend ended its answer before it was finished.")
            self.ended = True
        return None

    def _close(self) -> None:
        """The open call, if there is one, has come to its end. No input at all is an empty one."""
        given, self._input = self._input, None
        text = "".join(given or ())
        self._torn = self._torn or bool(text.strip() and not is_object(text))

    def _count(self, found: Any) -> None:
        """Counts come twice: with the start, and those that are final with the end."""
        if isinstance(found, dict):
            self._counts |= {name: value for name, value in found.items() if value is not None}

    def _block(self, block: dict[str, Any]) -> Delta | None:
        self._close()
        if block.get("type") != "tool_use":
            return None
        self._calls += 1
        self._input = []
        function = FunctionCall(name=str(block.get("name") or ""), arguments="")
        head = ToolCallDelta(self._calls, str(block.get("id") or ""), "function", function)
        return Delta(tool_calls=[head])

    def _piece(self, delta: dict[str, Any]) -> Delta | None:
        kind = delta.get("type")
        if kind == "text_delta":
            return Delta(content=str(delta.get("text", "")))
        if kind == "thinking_delta":
            return Delta(reasoning_content=str(delta.get("thinking", "")))
        if kind == "input_json_delta" and self._input is not None:
            text = str(delta.get("partial_json", ""))
            self._input.append(text)
            function = FunctionCall(arguments=text)
            return Delta(tool_calls=[ToolCallDelta(self._calls, function=function)])
        return None


def _torn() -> UpstreamFailed:
    return UpstreamFailed(
        "The model called a tool with arguments that are not a JSON object.",
        code="malformed_tool_call",
    )


def ending(fields: dict[str, Any]) -> tuple[str | None, str | None]:
    """(finish reason, stop string) out of ``stop_reason`` and ``stop_sequence``."""
    reason = fields.get("stop_reason")
    stopped_by = fields.get("stop_sequence")
    found = _REASONS.get(reason, "stop") if isinstance(reason, str) else None
    return found, stopped_by if isinstance(stopped_by, str) else None


def usage_from(counts: Any) -> Usage:
    """Counts as OpenAI spells them: all input is the prompt's, read from the cache or not. What is
    no count counts as none."""
    found = counts if isinstance(counts, dict) else {}
    fresh, read, written, out = (
        _count_of(found.get(name))
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
        by_age = found.get("cache_creation")
        hour = by_age.get("ephemeral_1h_input_tokens") if isinstance(by_age, dict) else 0
        details.cache_write_tokens = written
        details.cache_write_1h_tokens = min(_count_of(hour), written)
    return Usage(prompt, out, prompt + out, details)


def _count_of(value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and value < 2**53:
        value = int(value)
    return value if isinstance(value, int) and value > 0 else 0


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
    if not all(isinstance(call.get("input", {}), dict) for call in calls):
        raise _torn()
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
