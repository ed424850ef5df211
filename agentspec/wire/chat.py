"""OpenAI chat completions as msgspec structs: request, whole answer, stream chunk.

Unknown fields are accepted and ignored; a known field of the wrong type is an error that names it
(``wire.errors.from_validation``). ``UNSET`` means that the field was not sent.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from .errors import InvalidRequest, from_validation
from .extension import SpecReport, SpecRequest

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ContentPart(msgspec.Struct, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: Any = None
    refusal: str | None = None


class FunctionCall(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct):
    """A whole call in a message. ``arguments`` is JSON text; ``type`` is always written.

    ``CALL_EXTRAS``: fields of some vendors, which want them back with the next turn (Gemini's
    ``extra_content.google.thought_signature``); they are passed on unread.
    """

    function: FunctionCall
    id: str | None = None
    type: str = "function"
    extra_content: Any = UNSET
    provider_specific_fields: Any = UNSET


CALL_EXTRAS = ("extra_content", "provider_specific_fields")


def call_extras(call: ToolCall | ToolCallDelta) -> dict[str, Any]:
    """The fields of ``CALL_EXTRAS`` that a call has."""
    fields = {name: getattr(call, name) for name in CALL_EXTRAS}
    return {name: value for name, value in fields.items() if value is not UNSET}


class Message(msgspec.Struct, omit_defaults=True):
    role: Role
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    function_call: FunctionCall | None = None

    def text(self) -> str:
        """The message's text; text parts are joined, absent content is empty."""
        if isinstance(self.content, list):
            return "".join(part.text or part.refusal or "" for part in self.content)
        return self.content or ""


class FunctionDef(msgspec.Struct, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, omit_defaults=True):
    function: FunctionDef
    type: str = "function"


class JsonSchemaFormat(msgspec.Struct, omit_defaults=True):
    name: str = "response"
    schema: dict[str, Any] | bool | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, omit_defaults=True):
    type: str
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(msgspec.Struct, omit_defaults=True):
    """continuous_usage_stats: every chunk carries the counts so far (vLLM's and SGLang's name)."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(msgspec.Struct, omit_defaults=True):
    """One chat completion request, as far as agentspec reads it."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    functions: Any = None
    function_call: Any = None
    modalities: list[str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    agentspec: SpecRequest | None = None

    @property
    def token_limit(self) -> int | None:
        """The caller's output limit: ``max_completion_tokens``, else ``max_tokens``, else None."""
        limit = self.max_completion_tokens
        return limit if limit is not None else self.max_tokens

    @property
    def wants_usage_chunk(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        options = self.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)


class PromptTokensDetails(msgspec.Struct):
    """Of the prompt: read from a cache; written to one, which Anthropic bills apart; and how much
    of that to one that lasts an hour, which it bills higher."""

    cached_tokens: int = 0
    cache_write_tokens: int | UnsetType = UNSET
    cache_write_1h_tokens: int | UnsetType = UNSET


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(msgspec.Struct, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprob] = []


class ChoiceLogprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None
    refusal: list[TokenLogprob] | None = None


class AnswerMessage(msgspec.Struct):
    """The assistant's message. ``content`` is always present (null beside tool calls only)."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class Choice(msgspec.Struct):
    """stop_reason: the stop string that ended the choice, where one did (vLLM's name)."""

    index: int
    message: AnswerMessage
    finish_reason: str | None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | UnsetType = UNSET


class ChatResponse(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[Choice]
    object: str = "chat.completion"
    usage: Usage | None = None
    system_fingerprint: str | None = None
    agentspec: SpecReport | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, omit_defaults=True):
    """A piece of a call: the first carries id, type and name, later ones only arguments."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionCall | None = None
    extra_content: Any = UNSET
    provider_specific_fields: Any = UNSET


class Delta(msgspec.Struct, omit_defaults=True):
    role: str | None = None
    content: str | None | UnsetType = UNSET
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChunkChoice(msgspec.Struct):
    """stop_reason: as in ``Choice``, on the chunk with the finish reason."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | None | UnsetType = UNSET
    system_fingerprint: str | None = None
    agentspec: SpecReport | UnsetType = UNSET


class _ToolType(msgspec.Struct):
    type: str = "function"


class _ToolTypes(msgspec.Struct):
    tools: list[_ToolType] | None = None


_REQUEST = msgspec.json.Decoder(ChatRequest)
_TOOL_TYPES = msgspec.json.Decoder(_ToolTypes)
_ENCODER = msgspec.json.Encoder()


def decode_request(body: bytes) -> ChatRequest:
    """Decode a request body. Raises ``InvalidRequest`` naming the offending field."""
    try:
        request = _REQUEST.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _foreign_tool(body) or from_validation(error) from None
    _refuse_legacy(request)
    _refuse_unservable(request)
    for message in request.messages:
        if message.function_call is not None:
            _take_legacy_call(message)
    if not request.messages:
        raise InvalidRequest(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            param="messages",
            code="empty_array",
        )
    return request


def _refuse_legacy(request: ChatRequest) -> None:
    """The predecessors of tools, which would be ignored in silence."""
    for name, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if getattr(request, name):
            raise InvalidRequest(
                f"Unsupported parameter: '{name}' is not supported. Use '{instead}' instead.",
                param=name,
                code="unsupported_parameter",
            )


def _refuse_unservable(request: ChatRequest) -> None:
    if any(kind != "text" for kind in request.modalities or ()):
        raise InvalidRequest(
            "Invalid value for 'modalities': answers are text here, nothing else.",
            param="modalities",
            code="unsupported_parameter",
        )
    wanted = request.response_format
    if wanted is not None and wanted.type == "json_schema":
        given = wanted.json_schema
        if given is None or given.schema is None:
            param = "response_format.json_schema" + ("" if given is None else ".schema")
            raise InvalidRequest(
                f"Missing required parameter: '{param}'.",
                param=param,
                code="missing_required_parameter",
            )


def _take_legacy_call(message: Message) -> None:
    """What an assistant called before there were several calls in a message."""
    call, message.function_call = message.function_call, None
    if call is not None and not message.tool_calls:
        message.tool_calls = [ToolCall(call, id=f"call_{call.name}")]


def _foreign_tool(body: bytes) -> InvalidRequest | None:
    """The refusal of a tool that is no function (it has another shape), if there is one."""
    try:
        tools = _TOOL_TYPES.decode(body).tools or []
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    for i, tool in enumerate(tools):
        if tool.type != "function":
            return InvalidRequest(
                f"Unsupported tool type: '{tool.type[:64]}'. Supported values are: 'function'.",
                param=f"tools[{i}].type",
                code="invalid_value",
            )
    return None


def encode(value: Any) -> bytes:
    """Any wire struct (or plain JSON value) as JSON bytes."""
    return _ENCODER.encode(value)
