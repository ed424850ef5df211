"""A canonical answer -> Responses: the same items whether streamed or sent at once.

Events in OpenAI's order: created, in_progress; for each item added, its parts and deltas, done;
then exactly one of completed, incomplete and failed. One item is open at a time. Clients take a
call from ``output_item.done`` and the counts from the last event, which always has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .chat import Usage
from .errors import CALL_CODES, AgentspecError, UpstreamFailed
from .opaque import seal
from .pieces import Call, Piece, Text
from .responses_builtin import BUILTINS, call_fields
from .responses_tools import INPUT, ToolSet
from .sse import named_event

ANSWER_ID = "resp_"
"""How the ids of answers begin; those of items begin otherwise."""

# What the first events don't repeat: it is large, and stands in the last one.
_BRIEF = {"instructions": None, "tools": []}
_CODES = (
    *("context_length_exceeded", "rate_limit_exceeded", "insufficient_quota"),
    *CALL_CODES,
)
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What of a request its answer repeats, and how the client wants reasoning.

    summaries: reasoning as summary parts (else as ``reasoning_text``); sealed: with
    ``encrypted_content``, by which a client that stores nothing carries it to the next turn.
    echo: fields of the response object that repeat the request.
    """

    tools: ToolSet
    summaries: bool = False
    sealed: bool = False
    echo: dict[str, Any] = field(default_factory=dict)


class ResponsesWriter:
    """Writes one answer. Every method returns the events to send, for a stream.

    key: a word of the answer's own, from which all ids are made.
    """

    def __init__(self, key: str, model: str, created_s: int, shown: Shown):
        self.id = f"{ANSWER_ID}{key}"
        self._key = key
        self._model = model
        self._created_s = created_s
        self._shown = shown
        self._number = 0
        self._open: dict[str, Any] | None = None
        self._text: list[str] = []
        self.items: list[dict[str, Any]] = []
        self.started = False

    def start(self) -> bytes:
        self.started = True
        body = self.body("in_progress", None) | _BRIEF
        return self._event("response.created", response=body) + self._event(
            "response.in_progress", response=body
        )

    def take(self, pieces: Sequence[Piece]) -> bytes:
        events = b"" if self.started else self.start()
        for piece in pieces:
            events += self._call(piece) if isinstance(piece, Call) else self._say(piece)
        return events

    def finish(self, reason: str | None, usage: Usage | None, **more: Any) -> bytes:
        """The end of an answer that came to its end, maybe to that of its token limit."""
        events = (b"" if self.started else self.start()) + self._close(_status(reason))
        name = f"response.{_status(reason)}"
        return events + self._event(name, response=self.finished(reason, usage, **more))

    def finished(self, reason: str | None, usage: Usage | None, **more: Any) -> dict[str, Any]:
        """The response object of an answer that came to its end."""
        status = _status(reason)
        self._close(status)
        body = self.body(status, usage) | more
        if status == "incomplete":
            body["incomplete_details"] = {"reason": _REASONS[reason or ""]}
        return body

    def fail(self, error: AgentspecError, usage: Usage | None = None) -> bytes:
        """The end of an answer that broke off. An open item stays open: it is not to be used.

        usage: the counts so far, where they are known.
        """
        events = b"" if self.started else self.start()
        body = self.body("failed", usage)
        code = error.code or error.type
        if code not in _CODES:
            code = "server_error"
        body["error"] = {"code": code, "message": error.message}
        return events + self._event("response.failed", response=body)

    def body(self, status: str, usage: Usage | None) -> dict[str, Any]:
        """The response object with the items finished so far."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": list(self.items),
            **self._shown.echo,
            "usage": None if status == "in_progress" else usage_body(usage),
        }

    def _event(self, name: str, /, **fields: Any) -> bytes:
        made = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        return named_event(name, made)

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self.items)}

    def _add(self, item: dict[str, Any]) -> bytes:
        self._open, self._text = item, []
        return self._event("response.output_item.added", output_index=len(self.items), item=item)

    def _say(self, piece: Text) -> bytes:
        events = b""
        if self._open is None or _kind(self._open) != piece.kind:
            events += self._close("completed") + self._add(self._item(piece.kind))
            events += self._part(piece.kind, "added", "")
        self._text.append(piece.text)
        name, index = self._names(piece.kind)
        fields: dict[str, Any] = {**self._place(), index: 0, "delta": piece.text}
        if piece.kind == "text":
            fields["logprobs"] = []
        return events + self._event(f"response.{name}.delta", **fields)

    def _item(self, kind: str) -> dict[str, Any]:
        count = len(self.items)
        if kind == "reasoning":
            return {
                "id": f"rs_{self._key}_{count}",
                "type": "reasoning",
                "summary": [],
                "status": "in_progress",
            }
        return {
            "id": f"msg_{self._key}_{count}",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": ""}] if kind == "refusal" else [],
        }

    def _names(self, kind: str) -> tuple[str, str]:
        """(the middle of the text events' names, the name of the part's index)."""
        if kind == "reasoning" and self._shown.summaries:
            return "reasoning_summary_text", "summary_index"
        names = {"text": "output_text", "reasoning": "reasoning_text", "refusal": "refusal"}
        return names[kind], "content_index"

    def _part(self, kind: str, what: str, text: str) -> bytes:
        name, index = self._names(kind)
        event = "reasoning_summary_part" if index == "summary_index" else "content_part"
        fields = {**self._place(), index: 0, "part": self._part_body(kind, text)}
        return self._event(f"response.{event}.{what}", **fields)

    def _part_body(self, kind: str, text: str) -> dict[str, Any]:
        if kind == "refusal":
            return {"type": "refusal", "refusal": text}
        if kind == "text":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "summary_text" if self._shown.summaries else "reasoning_text", "text": text}

    def _close(self, status: str) -> bytes:
        """End the open item of text, if there is one."""
        if self._open is None:
            return b""
        kind, text = _kind(self._open), "".join(self._text)
        name, index = self._names(kind)
        key = "refusal" if kind == "refusal" else "text"
        fields: dict[str, Any] = {**self._place(), index: 0, key: text}
        if kind == "text":
            fields["logprobs"] = []
        events = self._event(f"response.{name}.done", **fields) + self._part(kind, "done", text)
        part = self._part_body(kind, text)
        item = self._open | {"status": status}
        if kind != "reasoning":
            item["content"] = [part]
        else:
            item["summary" if self._shown.summaries else "content"] = [part]
            if self._shown.sealed:
                item["encrypted_content"] = seal(text)
        self._open = None
        return events + self._done(item)

    def _done(self, item: dict[str, Any]) -> bytes:
        index = len(self.items)
        self.items.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)

    def _call(self, call: Call) -> bytes:
        """A whole call: added, its arguments in one delta, done."""
        events = self._close("completed")
        tool = self._shown.tools.names.find(call.name)
        if tool.builtin:
            return events + self._builtin(tool.name, call)
        kind, key, text = ("function_call", "arguments", call.arguments)
        if tool.custom:
            kind, key, text = ("custom_tool_call", "input", _input_of(call))
        item: dict[str, Any] = {
            "id": f"{'ctc' if tool.custom else 'fc'}_{self._key}_{len(self.items)}",
            "type": kind,
            "status": "in_progress",
            "call_id": call.id,
            "name": tool.name,
            key: "",
        }
        if tool.namespace:
            item["namespace"] = tool.namespace
        stem = f"response.{kind}_{key}"
        events += self._add(item)
        events += self._event(f"{stem}.delta", **self._place(), delta=text)
        named = {} if tool.custom else {"name": tool.name}
        events += self._event(f"{stem}.done", **self._place(), **{key: text}, **named)
        self._open = None
        return events + self._done(item | {key: text, "status": "completed"})

    def _builtin(self, name: str, call: Call) -> bytes:
        """A whole call of a tool that is known by its type."""
        builtin, fields = BUILTINS[name], call_fields(name, call.values())
        if fields is None:
            raise UpstreamFailed(
                f"The model called the tool '{name}' without what it needs.",
                code="malformed_tool_call",
            )
        item: dict[str, Any] = {
            "id": f"{builtin.prefix}_{self._key}_{len(self.items)}",
            "type": builtin.item,
            "status": "in_progress",
            "call_id": call.id,
            **fields,
        }
        events = self._add(item)
        self._open = None
        return events + self._done(item | {"status": "completed"})


def _status(reason: str | None) -> str:
    return "incomplete" if reason in _REASONS else "completed"


def _kind(item: dict[str, Any]) -> str:
    if item["type"] == "reasoning":
        return "reasoning"
    return "refusal" if item["content"] else "text"


def _input_of(call: Call) -> str:
    values = call.values()
    found = values.get(INPUT)
    if not isinstance(found, str):
        raise UpstreamFailed(
            f"The model called the tool '{call.name}' without its text.", code="malformed_tool_call"
        )
    return found


def usage_body(usage: Usage | None) -> dict[str, Any]:
    """Counts as Responses spells them; every detail is an integer, which clients rely on."""
    inputs = usage.prompt_tokens_details if usage else None
    outputs = usage.completion_tokens_details if usage else None
    return {
        "input_tokens": usage.prompt_tokens if usage else 0,
        "input_tokens_details": {
            "cached_tokens": min(inputs.cached_tokens, usage.prompt_tokens)
            if usage and inputs
            else 0,
            "cache_write_tokens": (inputs.cache_write_tokens or 0) if inputs else 0,
        },
        "output_tokens": usage.completion_tokens if usage else 0,
        "output_tokens_details": {"reasoning_tokens": outputs.reasoning_tokens if outputs else 0},
        "total_tokens": usage.total_tokens if usage else 0,
    }
