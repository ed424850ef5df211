"""What a surface's request becomes: a chat request, which every backend understands."""

from __future__ import annotations

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


def image_part(url: str) -> ContentPart:
    return ContentPart("image_url", image_url={"url": url})


def content_of(parts: list[ContentPart]) -> str | list[ContentPart]:
    """A message's content: plain text where there is one part of it."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text or ""
    return parts


class Conversation:
    """Messages in the making, as chat completions want them: results right behind their calls."""

    def __init__(self, messages: list[Message] | None = None):
        self.messages = messages or []
        self._shown: list[ContentPart] = []
        self._reasoning = ""

    def say(self, role: Any, content: str | list[ContentPart]) -> None:
        """A message of anyone but the assistant."""
        self._show()
        self._flush_reasoning()
        self.messages.append(Message(role, content))

    def think(self, text: str) -> None:
        """Reasoning of the assistant's message that follows."""
        self._show()
        self._reasoning += text

    def answer(self, content: str | list[ContentPart] = "", call: ToolCall | None = None) -> None:
        """Something the assistant said or called. Calls stay in one message until their results."""
        self._show()
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or self._starts_another(last, content):
            last = Message("assistant")
            self.messages.append(last)
        if self._reasoning:
            last.reasoning_content = (last.reasoning_content or "") + self._reasoning
            self._reasoning = ""
        if content:
            last.content = content if not last.content else _joined(last.content, content)
        if call is not None:
            last.tool_calls = [*(last.tool_calls or ()), call]

    def _starts_another(self, last: Message, content: str | list[ContentPart]) -> bool:
        if last.tool_calls:
            return False
        return bool(last.content and (content or self._reasoning))

    def result(self, call_id: str, text: str, images: list[ContentPart]) -> None:
        """A tool's result. Its pictures follow in a user message: tool messages hold text only."""
        self._flush_reasoning()
        self.messages.append(Message("tool", text, tool_call_id=call_id))
        self._shown += images

    def finish(self) -> list[Message]:
        self._show()
        self._flush_reasoning()
        return self.messages

    def _show(self) -> None:
        if self._shown:
            shown, self._shown = self._shown, []
            self.messages.append(Message("user", shown))

    def _flush_reasoning(self) -> None:
        if self._reasoning:
            self.answer()
            # A message needs content; some servers refuse one that has neither it nor calls.
            if self.messages[-1].content is None and not self.messages[-1].tool_calls:
                self.messages[-1].content = ""


def _joined(
    first: str | list[ContentPart], second: str | list[ContentPart]
) -> str | list[ContentPart]:
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    left = [text_part(first)] if isinstance(first, str) else first
    return left + ([text_part(second)] if isinstance(second, str) else second)
