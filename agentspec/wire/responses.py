"""OpenAI Responses as msgspec structs: the request, the items of its input, its tools.

Kinds of items and tools that are not listed here are accepted and left out: agents send kinds
that only a vendor's own servers can serve (web search, file search, image generation).
Read next: ``responses_in.py`` (to a chat request), ``responses_out.py`` (and back).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from .errors import InvalidRequest
from .extension import SpecRequest
from .fields import decode, missing


class Part(msgspec.Struct):
    """A part of a message's or a tool result's content."""

    type: str = "input_text"
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None
    detail: str | None = None
    file_id: str | None = None


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
    top_logprobs: int | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    conversation: Any = None
    prompt: Any = None
    user: str | None = None
    seed: int | None = None
    agentspec: SpecRequest | None = None


_REQUEST = msgspec.json.Decoder(ResponsesRequest)
_UNSUPPORTED = {
    "background": "Background responses are not supported here.",
    "conversation": "Conversations are not kept here: use 'previous_response_id', or send the "
    "whole conversation in 'input'.",
    "prompt": "Prompt templates are not kept here: send the prompt's text in 'input'.",
}
_TRUNCATIONS = ("auto", "disabled")
_FORMATS = ("text", "json_object", "json_schema")
_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    _LOGPROBS,
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""OpenAI's values; most of them speak of what only its own servers run, and add nothing here."""


def decode_request(body: bytes) -> ResponsesRequest:
    """Decode a request body. Raises ``InvalidRequest`` naming the offending field."""
    request = decode(_REQUEST, body)
    for name, reason in _UNSUPPORTED.items():
        if getattr(request, name):
            raise InvalidRequest(reason, param=name, code="unsupported_parameter")
    _one_of("truncation", request.truncation, _TRUNCATIONS)
    for index, name in enumerate(request.include or ()):
        _one_of(f"include[{index}]", name, _INCLUDABLE)
        if name == _LOGPROBS:
            raise _no_logprobs(f"include[{index}]")
    if request.top_logprobs:
        raise _no_logprobs("top_logprobs")
    _check_format(request.text.format if request.text else None)
    if request.input is None and request.previous_response_id is None:
        raise missing("input")
    return request


def _no_logprobs(param: str) -> InvalidRequest:
    return InvalidRequest(
        "Log probabilities are not served on this path: use /v1/chat/completions.",
        param=param,
        code="unsupported_parameter",
    )


def _check_format(wanted: TextFormat | None) -> None:
    if wanted is None:
        return
    _one_of("text.format.type", wanted.type, _FORMATS)
    if wanted.type == "json_schema":
        for name in ("name", "schema"):
            if getattr(wanted, name) is None:
                raise missing(f"text.format.{name}")


def _one_of(param: str, value: str | None, known: Collection[str]) -> None:
    if value is not None and value not in known:
        listed = ", ".join(f"'{name}'" for name in known)
        raise InvalidRequest(
            f"Invalid value: '{value[:64]}'. Supported values are: {listed}.",
            param=param,
            code="invalid_value",
        )
