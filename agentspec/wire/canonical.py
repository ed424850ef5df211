"""What a surface's request becomes: a chat request, which every backend understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from .chat import ChatRequest, ContentPart, Message, Tool, ToolCall, encode

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def body_of(request: ChatRequest, extras: dict[str, Any] | None = None) -> dict[str, msgspec.Raw]:
    """The chat request as the JSON fields that a backend sends on.

    extras: further fields that agentspec doesn't read but a backend may (``reasoning_effort``).
    """
    body = _FIELDS.decode(encode(request))
    body.pop("stream", None)
    if request.tools:
        body["tools"] = msgspec.Raw(encode([_spelled(tool) for tool in request.tools]))
    if request.response_format and request.response_format.json_schema:
        wanted = request.response_format.json_schema
        schema = msgspec.to_builtins(wanted) | {"name": wanted.name}
        body["response_format"] = msgspec.Raw(
            encode({"type": "json_schema", "json_schema": schema})
        )
    for name, value in (extras or {}).items():
        if value is not None:
            body[name] = msgspec.Raw(encode(value))
    return body


def _spelled(tool: Tool) -> dict[str, Any]:
    """A tool with its ``type``, which our struct leaves out and other servers require."""
    return {"type": tool.type, "function": msgspec.to_builtins(tool.function)}


def text_part(text: str) -> ContentPart:
    return ContentPart("text", text=text)


def image_part(url: str, detail: str | None = None) -> ContentPart:
    """detail: how closely it is to be looked at ("low", "high", "auto"), where that is told."""
    return ContentPart("image_url", image_url={"url": url} | ({"detail": detail} if detail else {}))


def content_of(parts: list[ContentPart]) -> str | list[ContentPart]:
    """A message's content: plain text where there is one part of it."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text or ""
    return parts


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the client's request a message comes from. exact: the parts of its content stand
    there in the same order."""

    where: str = ""
    exact: bool = True


class Conversation:
    """Messages in the making, as chat completions want them: results right behind their calls."""

    def __init__(self, messages: list[Message] | None = None):
        self.messages = messages or []
        self._places: dict[int, Place] = {}
        self._shown: list[ContentPart] = []
        self._shown_place: Place | None = None
        self._reasoning = ""

    def say(self, role: Any, content: str | list[ContentPart], place: Place | None = None) -> None:
        """A message of anyone but the assistant."""
        self._show()
        self._flush_reasoning()
        self._add(Message(role, content), place)

    def think(self, text: str) -> None:
        """Reasoning of the assistant's message that follows."""
        self._show()
        self._reasoning += text

    def answer(
        self,
        content: str | list[ContentPart] = "",
        calls: Sequence[ToolCall] = (),
        place: Place | None = None,
    ) -> None:
        """Something the assistant said and called. Calls stay in one message until their results.

        Servers refuse a message that says nothing: there will be none.
        """
        self._show()
        if not (content or calls or self._reasoning):
            return
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or self._starts_another(last, content):
            last = self._add(Message("assistant"), place)
        if self._reasoning:
            last.reasoning_content = (last.reasoning_content or "") + self._reasoning
            self._reasoning = ""
        if content:
            last.content = content if not last.content else _joined(last.content, content)
        if calls:
            last.tool_calls = [*(last.tool_calls or ()), *calls]

    def _starts_another(self, last: Message, content: str | list[ContentPart]) -> bool:
        if last.tool_calls:
            return False
        return bool(last.content and (content or self._reasoning))

    def result(
        self, call_id: str, text: str, images: list[ContentPart], place: Place | None = None
    ) -> None:
        """A tool's result. Its pictures follow in a user message: tool messages hold text only."""
        self._flush_reasoning()
        self._add(Message("tool", text, tool_call_id=call_id), place)
        self._shown += images
        if images and place is not None:
            self._shown_place = Place(place.where, exact=False)

    def finish(self) -> list[Message]:
        """The conversation, each result behind its call, wherever it stood before."""
        self._show()
        self._flush_reasoning()
        self.messages = _results_behind_calls(self.messages)
        return self.messages

    def places(self) -> list[Place]:
        """Where each of the messages comes from."""
        return [self._places.get(id(message), Place()) for message in self.messages]

    def _add(self, message: Message, place: Place | None) -> Message:
        self.messages.append(message)
        if place is not None:
            self._places[id(message)] = place
        return message

    def _show(self) -> None:
        if self._shown:
            shown, self._shown = self._shown, []
            self._add(Message("user", shown), self._shown_place)

    def _flush_reasoning(self) -> None:
        if self._reasoning:
            self.answer()
            # A message needs content; some servers refuse one that has neither it nor calls.
            if self.messages[-1].content is None and not self.messages[-1].tool_calls:
                self.messages[-1].content = ""


def _results_behind_calls(messages: list[Message]) -> list[Message]:
    """Servers refuse a call whose results don't follow at once, whatever stands between.

    A result whose call isn't there stays where it is.
    """
    callers: dict[str | None, int] = {}
    behind: dict[int, list[Message]] = {}
    moved: set[int] = set()
    for index, message in enumerate(messages):
        if message.role == "tool" and message.tool_call_id in callers:
            behind.setdefault(callers.pop(message.tool_call_id), []).append(message)
            moved.add(index)
        for call in message.tool_calls or ():
            callers[call.id] = index
    ordered: list[Message] = []
    for index, message in enumerate(messages):
        if index not in moved:
            ordered += (message, *behind.get(index, ()))
    return ordered


def _joined(
    first: str | list[ContentPart], second: str | list[ContentPart]
) -> str | list[ContentPart]:
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    left = [text_part(first)] if isinstance(first, str) else first
    return left + ([text_part(second)] if isinstance(second, str) else second)
