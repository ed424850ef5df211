"""A canonical answer -> Messages: the same blocks whether streamed or sent at once.

Events in Anthropic's order: message_start; for each block start, deltas, stop, one open at a time
under rising indexes; message_delta with stop reason and counts; message_stop. A broken answer ends
with ``error`` and nothing behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .chat import Usage
from .errors import AgentspecError
from .messages_errors import anthropic_body
from .names import ToolNames
from .opaque import seal
from .pieces import Call, Piece, Text
from .sse import named_event

_STOPS = {"length": "max_tokens", "content_filter": "refusal"}


class MessagesWriter:
    """Writes one answer. Every method returns the events to send, for a stream.

    thinking: "shown", "omitted" (blocks that hold only their seal) or "off" (no blocks).
    """

    def __init__(self, key: str, model: str, names: ToolNames, *, thinking: str = "off"):
        self._key = key
        self._model = model
        self._names = names
        self._thinking = thinking
        self._kind = ""
        self._text: list[str] = []
        self.blocks: list[dict[str, Any]] = []
        self.started = False
        self._stopped_by: str | None = None

    def start(self, usage: Usage | None = None) -> bytes:
        """usage: the counts so far, where the backend tells them before the end."""
        self.started = True
        message = self.body(None, usage)
        return named_event("message_start", {"type": "message_start", "message": message})

    def take(self, pieces: Sequence[Piece], usage: Usage | None = None) -> bytes:
        events = b"" if self.started else self.start(usage)
        for piece in pieces:
            events += self._use(piece) if isinstance(piece, Call) else self._say(piece)
        return events

    def finish(
        self, reason: str | None, usage: Usage | None, stopped_by: str | None = None, **more: Any
    ) -> bytes:
        """The end of an answer that came to its end, maybe to that of its token limit.

        stopped_by: the stop string that ended it, where the backend tells one.
        """
        events = (b"" if self.started else self.start()) + self._close()
        self._stopped_by = stopped_by
        delta = {"stop_reason": self._stop(reason), "stop_sequence": stopped_by}
        fields = {"type": "message_delta", "delta": delta, "usage": usage_body(usage), **more}
        return (
            events
            + named_event("message_delta", fields)
            + named_event("message_stop", {"type": "message_stop"})
        )

    def fail(self, error: AgentspecError, request_id: str = "") -> bytes:
        """The end of an answer that broke off. request_id: as its header tells it."""
        return named_event("error", anthropic_body(error, request_id))

    def body(self, reason: str | None, usage: Usage | None) -> dict[str, Any]:
        """The message object. reason: the upstream's finish reason, None while it is running."""
        return {
            "id": f"msg_{self._key}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self.blocks),
            "stop_reason": self._stop(reason) if reason else None,
            "stop_sequence": self._stopped_by,
            "usage": usage_body(usage),
        }

    def _stop(self, reason: str | None) -> str:
        if reason in _STOPS:
            return _STOPS[reason]
        if self._stopped_by is not None:
            return "stop_sequence"
        used = any(block["type"] == "tool_use" for block in self.blocks)
        return "tool_use" if used else "end_turn"

    def _say(self, piece: Text) -> bytes:
        kind = "thinking" if piece.kind == "reasoning" else "text"
        if kind == "thinking" and self._thinking == "off":
            return b""
        events = b""
        if self._kind != kind:
            events += self._close()
            self._kind = kind
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
            events += self._start_block({"type": kind, **empty})
        self._text.append(piece.text)
        if kind == "thinking" and self._thinking == "omitted":
            return events
        return events + self._delta({"type": f"{kind}_delta", kind: piece.text})

    def _close(self) -> bytes:
        """End the open block, if there is one."""
        if not self._kind:
            return b""
        kind, text = self._kind, "".join(self._text)
        self._kind, self._text = "", []
        if kind == "text":
            return self._stop_block({"type": "text", "text": text})
        signature = seal(text)
        events = self._delta({"type": "signature_delta", "signature": signature})
        shown = "" if self._thinking == "omitted" else text
        block = {"type": "thinking", "thinking": shown, "signature": signature}
        return events + self._stop_block(block)

    def _use(self, call: Call) -> bytes:
        """A whole call: its input in one delta (``{}`` too: an empty one would be no JSON)."""
        events = self._close()
        block = {"type": "tool_use", "id": call.id, "name": self._names.find(call.name).name}
        events += self._start_block(block | {"input": {}})
        events += self._delta({"type": "input_json_delta", "partial_json": call.arguments})
        return events + self._stop_block(block | {"input": call.values()})

    def _start_block(self, block: dict[str, Any]) -> bytes:
        return self._event("content_block_start", content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._event("content_block_delta", delta=delta)

    def _stop_block(self, block: dict[str, Any]) -> bytes:
        event = self._event("content_block_stop")
        self.blocks.append(block)
        return event

    def _event(self, name: str, /, **fields: Any) -> bytes:
        return named_event(name, {"type": name, "index": len(self.blocks), **fields})


def usage_body(usage: Usage | None) -> dict[str, Any]:
    """Counts as Messages spells them: ``input_tokens`` leaves out what was cached, or is
    now."""
    inputs = usage.prompt_tokens_details if usage else None
    prompt = usage.prompt_tokens if usage else 0
    cached = min(inputs.cached_tokens, prompt) if inputs else 0
    written = min(inputs.cache_write_tokens or 0, prompt - cached) if inputs else 0
    return {
        "input_tokens": prompt - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens if usage else 0,
    }
