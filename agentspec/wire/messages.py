"""Anthropic Messages as msgspec structs: the request, the blocks of its content, its tools.

Unknown fields, betas, block kinds and server tools are accepted and left out. Read next:
``messages_in.py`` (to a chat request), ``messages_out.py`` (and back), ``messages_errors.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import InvalidRequest
from .extension import SpecRequest
from .fields import decode, missing


class Block(msgspec.Struct):
    """A text, thinking, image, document or search result block of a message or tool result."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    source: Any = None
    content: Any = None
    title: str | None = None
    tool_name: str | None = None


class ToolUse(msgspec.Struct):
    id: str
    name: str
    input: dict[str, Any] = {}


class ToolResult(msgspec.Struct):
    tool_use_id: str
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None


class MessageParam(msgspec.Struct):
    role: str
    content: str | list[msgspec.Raw]


class ToolParam(msgspec.Struct):
    """A tool. Those without ``input_schema`` run on the vendor's servers, or are known by kind."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    """type: "enabled", "adaptive" or "disabled"; display: "omitted" sends its seal only."""

    type: str = "disabled"
    display: str | None = None


class OutputFormat(msgspec.Struct):
    type: str
    schema: dict[str, Any] | bool | None = None


class OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: OutputFormat | None = None


class Metadata(msgspec.Struct):
    user_id: str | None = None


class MessagesRequest(msgspec.Struct, kw_only=True):
    """One request, as far as agentspec reads it."""

    model: str
    messages: list[MessageParam]
    max_tokens: int | None = None
    system: str | list[Block] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: Metadata | None = None
    thread: Any = None
    agentspec: SpecRequest | None = None


_REQUEST = msgspec.json.Decoder(MessagesRequest)


def decode_request(body: bytes) -> MessagesRequest:
    """Decode a request body. Raises ``InvalidRequest`` naming the offending field."""
    request = decode(_REQUEST, body)
    if not request.messages:
        raise missing("messages")
    return request


def check_run(request: MessagesRequest) -> None:
    """Raise ``InvalidRequest`` where what a run needs (a count doesn't) is missing or not allowed.

    Anthropic's rules: a limit is required, and a temperature is at most 1.
    """
    if request.max_tokens is None:
        raise InvalidRequest(
            "max_tokens: Field required", param="max_tokens", code="missing_required_parameter"
        )
    if request.temperature is not None and not 0 <= request.temperature <= 1:
        bound = (
            "less than or equal to 1" if request.temperature > 1 else "greater than or equal to 0"
        )
        raise InvalidRequest(
            f"temperature: Input should be {bound}", param="temperature", code="invalid_value"
        )
