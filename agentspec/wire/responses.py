"""OpenAI Responses as msgspec structs: the request, the items of its input, its tools.

Kinds of items and tools that are not listed here are accepted and left out: agents send kinds
that only a vendor's own servers can serve (web search, file search, image generation).
Read next: ``responses_in.py`` (to a chat request), ``responses_out.py`` (and back).
"""

from __future__ import annotations

from typing import Any

import msgspec

from .extension import SpecRequest
from .fields import decode, missing


class Part(msgspec.Struct):
    """A part of a message's or a tool result's content."""

    type: str = "input_text"
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None


class MessageItem(msgspec.Struct):
    """A message; the short form of it has no ``type``."""

    role: str
    content: str | list[Part] | None = None


class CallItem(msgspec.Struct):
    """An earlier ``function_call``, or a ``custom_tool_call`` with ``input``."""

    call_id: str
    name: str
    arguments: str | None = None
    input: str | None = None
    namespace: str | None = None


class OutputItem(msgspec.Struct):
    """The result of a call."""

    call_id: str
    output: str | list[Part] | None = None


class SummaryPart(msgspec.Struct):
    text: str = ""


class ReasoningItem(msgspec.Struct):
    summary: list[SummaryPart] | None = None
    content: list[SummaryPart] | None = None
    encrypted_content: str | None = None


class CompactionItem(msgspec.Struct):
    encrypted_content: str | None = None


class ReferenceItem(msgspec.Struct):
    id: str


class ToolsItem(msgspec.Struct):
    """``additional_tools``: tools that stand in the input instead of beside it."""

    tools: list[msgspec.Raw] = []


class FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class GrammarFormat(msgspec.Struct):
    """Of a custom tool's input: "text", or "grammar" in "lark" or "regex" syntax."""

    type: str = "text"
    syntax: str | None = None
    definition: str | None = None


class CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: GrammarFormat | None = None


class NamespaceTool(msgspec.Struct):
    name: str
    description: str | None = None
    tools: list[msgspec.Raw] = []


class TextFormat(msgspec.Struct):
    type: str = "text"
    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(msgspec.Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningConfig(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """One request, as far as agentspec reads it."""

    model: str
    input: str | list[msgspec.Raw] | None = None
    instructions: str | list[msgspec.Raw] | None = None
    tools: list[msgspec.Raw] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    user: str | None = None
    seed: int | None = None
    agentspec: SpecRequest | None = None


_REQUEST = msgspec.json.Decoder(ResponsesRequest)


def decode_request(body: bytes) -> ResponsesRequest:
    """Decode a request body. Raises ``InvalidRequest`` naming the offending field."""
    request = decode(_REQUEST, body)
    if request.input is None and request.previous_response_id is None:
        raise missing("input")
    return request
