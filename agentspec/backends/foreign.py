"""What OpenAI-compatible servers really send, and its translation into wire structs.

Anything may be missing: ``id``, ``object``, ``created``, ``usage``, even ``index``. How each server
tells the acceptance of drafted tokens stands in ``acceptance.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from agentspec.wire.chat import (
    CALL_EXTRAS,
    AnswerMessage,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    CompletionTokensDetails,
    Delta,
    FunctionCall,
    PromptTokensDetails,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from agentspec.wire.errors import UpstreamFailed
from agentspec.wire.extension import SpecReport

from .acceptance import Told, count, report_of
from .base import Turn
from .logprobs import logprobs_of
from .verdict import told_in


class ForeignFunction(msgspec.Struct):
    """arguments: JSON text; Ollama and others send the object itself."""

    name: str | None = None
    arguments: Any = None

    def call(self) -> FunctionCall:
        text = self.arguments
        if text is not None and not isinstance(text, str):
            text = _spelled(text)
        return FunctionCall(name=self.name, arguments=text)


class ForeignCall(msgspec.Struct):
    """extra_content, provider_specific_fields: see ``ToolCall``."""

    function: ForeignFunction | None = None
    id: str | None = None
    type: str | None = None
    index: int | None = None
    extra_content: Any = UNSET
    provider_specific_fields: Any = UNSET

    def extras(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in CALL_EXTRAS}
        return {name: value for name, value in fields.items() if value not in (UNSET, None)}


class ForeignPart(msgspec.Struct):
    """A part of content that a server wrote as a list (Mistral's reasoning models)."""

    type: str = "text"
    text: str | None = None
    thinking: Any = None


class ForeignText(msgspec.Struct):
    """A message or a delta. ``reasoning`` is how vLLM and others spell ``reasoning_content``;
    ``function_call`` is what calls were before there were several."""

    role: str | None = None
    content: str | list[ForeignPart] | None | UnsetType = UNSET
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ForeignCall] | None = None
    function_call: ForeignFunction | None = None

    def text(self) -> str | None | UnsetType:
        if not isinstance(self.content, list):
            return self.content
        return "".join(part.text or "" for part in self.content if part.type == "text")

    def thought(self) -> str | None:
        told = self.reasoning_content or self.reasoning
        if told or not isinstance(self.content, list):
            return told
        return "".join(_thought(part.thinking) for part in self.content) or None

    def calls(self) -> list[ForeignCall]:
        if self.function_call is not None and not self.tool_calls:
            return [ForeignCall(self.function_call)]
        return self.tool_calls or []


def _thought(told: Any) -> str:
    """Text, or a list of parts of it."""
    parts = told if isinstance(told, list) else [told]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


class ForeignChoice(msgspec.Struct):
    """The stop string is ``stop_reason`` with vLLM (a number for a token), ``matched_stop`` with
    SGLang."""

    index: int = 0
    delta: ForeignText | None = None
    message: ForeignText | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    stop_reason: Any = None
    matched_stop: Any = None

    def stopped_by(self) -> str | UnsetType:
        found = self.matched_stop if self.stop_reason is None else self.stop_reason
        return found if isinstance(found, str) else UNSET


class ForeignAnswer(msgspec.Struct):
    """A whole answer or one chunk of a stream; ``error`` alone when the backend gave up, which
    others spell ``{"object": "error", "message": ...}`` or ``{"detail": ...}``."""

    choices: list[ForeignChoice] | None = None
    usage: Any = None
    system_fingerprint: str | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    detail: Any = None
    code: Any = None
    type: Any = None
    agentspec: Any = None
    metrics: Any = None
    sglext: Any = None
    timings: Any = None

    def failure(self) -> Any:
        """What the backend gave up with, in ``verdict.error_from_event``'s words; None: it is an
        answer."""
        if self.error is not None:
            return self.error
        if self.choices is not None or not (self.detail or self.message or self.object == "error"):
            return None
        if self.detail is not None:
            return {"message": told_in(self.detail)}
        return {"message": self.message, "code": self.code, "type": self.type}

    def counts(self) -> dict[str, Any] | None:
        return self.usage if isinstance(self.usage, dict) else None


_DECODER = msgspec.json.Decoder(ForeignAnswer)
# vLLM's and SGLang's words for a request that was given up within.
_BROKEN = frozenset(("abort", "error", "cancelled", "canceled", "network_error"))
_REASONS = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", "content_filter")},
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("complete", "completed"), "stop"),
    **dict.fromkeys(("max_tokens", "model_length", "repetition"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "error_limit"), "length"),
    **dict.fromkeys(("function_call", "tool_use", "tool_call"), "tool_calls"),
    **dict.fromkeys(("safety", "refusal", "sensitive", "recitation"), "content_filter"),
    **dict.fromkeys(("blocklist", "prohibited_content", "spii"), "content_filter"),
}
"""What servers call the end of an answer, in lower case (the others are those of Mistral, TGI,
Gemini, Cohere, Zhipu, vLLM and the predecessors of tools). An end of another name is none that is
known to be good."""


def decode(data: bytes) -> ForeignAnswer:
    """Decode one answer or chunk. Raises ``UpstreamFailed`` when it is none."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UpstreamFailed(f"The backend's answer could not be read: {error}") from None
    except RecursionError:
        raise nested() from None


def nested() -> UpstreamFailed:
    return UpstreamFailed("The backend's answer could not be read: it is nested too deeply.")


def _spelled(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        raise nested() from None


def to_chunk(answer: ForeignAnswer, turn: Turn) -> ChatChunk:
    """One chunk of the stream, under the gateway's id and the name the client asked for."""
    chunk = ChatChunk(
        id=turn.answer_id,
        created=turn.created_s,
        model=turn.request.model,
        choices=[_chunk_choice(choice) for choice in answer.choices or []],
        system_fingerprint=answer.system_fingerprint,
    )
    usage = to_usage(answer)
    if usage is not None:
        chunk.usage = usage
    report = to_report(answer)
    if report is not None:
        chunk.agentspec = report
    return chunk


def to_response(answer: ForeignAnswer, turn: Turn) -> ChatResponse:
    """The whole answer, under the gateway's id and the name the client asked for."""
    if not answer.choices:
        raise UpstreamFailed("The backend's answer holds no choices.")
    report = to_report(answer)
    return ChatResponse(
        id=turn.answer_id,
        created=turn.created_s,
        model=turn.request.model,
        choices=[_choice(choice) for choice in answer.choices],
        usage=to_usage(answer),
        system_fingerprint=answer.system_fingerprint,
        agentspec=UNSET if report is None else report,
    )


def _completion(choice: ForeignChoice) -> ForeignText:
    """What a text completion says; it stands beside the other fields, not in a message."""
    return ForeignText(content=UNSET if choice.text is None else choice.text)


def _chunk_choice(choice: ForeignChoice) -> ChunkChoice:
    text = choice.delta or choice.message or _completion(choice)
    calls = [
        ToolCallDelta(
            index=position if call.index is None else call.index,
            id=call.id or None,
            type=call.type,
            function=call.function.call() if call.function else None,
            **call.extras(),
        )
        for position, call in enumerate(text.calls())
    ]
    delta = Delta(
        role=text.role,
        content=text.text(),
        reasoning_content=text.thought(),
        refusal=text.refusal,
        tool_calls=calls or None,
    )
    return ChunkChoice(
        choice.index, delta, _ending(choice), logprobs_of(choice.logprobs), choice.stopped_by()
    )


def _choice(choice: ForeignChoice) -> Choice:
    text = choice.message or _completion(choice)
    content = text.text()
    message = AnswerMessage(
        role=text.role or "assistant",
        content=None if content is UNSET else content,
        refusal=text.refusal,
    )
    calls = text.calls()
    if calls:
        message.tool_calls = [
            ToolCall(
                function=(call.function or ForeignFunction()).call(), id=call.id, **call.extras()
            )
            for call in calls
        ]
    reasoning = text.thought()
    if reasoning:
        message.reasoning_content = reasoning
    reason = _ending(choice)
    if reason is None:
        raise UpstreamFailed("The backend ended its answer before it was finished.")
    told = logprobs_of(choice.logprobs)
    return Choice(choice.index, message, reason, told, choice.stopped_by())


def _ending(choice: ForeignChoice) -> str | None:
    """The finish reason in OpenAI's words; None: there is none yet. Servers end an answer that they
    gave up as they end a whole one, but for the reason."""
    reason = choice.finish_reason
    if not reason:
        return None
    known = reason.lower().partition(":")[0].strip()
    if known in _BROKEN:
        raise UpstreamFailed(f"The backend gave its answer up ('{reason}').")
    if known not in _REASONS:
        raise UpstreamFailed(
            f"The backend ended its answer for an unknown reason ('{reason[:64]}')."
        )
    return _REASONS[known]


def to_usage(answer: ForeignAnswer) -> Usage | None:
    """Token counts; what is missing, negative or no number counts as none. Parts are at most their
    whole."""
    usage = answer.counts()
    if usage is None:
        return None
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    cached, outputs = _cached(answer, usage), _details(usage, "completion_tokens_details")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=_inputs(_details(usage, "prompt_tokens_details"), cached, prompt),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=min(count(outputs, "reasoning_tokens"), completion),
            accepted_prediction_tokens=count(outputs, "accepted_prediction_tokens"),
            rejected_prediction_tokens=count(outputs, "rejected_prediction_tokens"),
        )
        if outputs
        else None,
    )


def _inputs(
    told: dict[str, Any] | None, cached: int | None, prompt: int
) -> PromptTokensDetails | None:
    """Parts of the prompt. litellm has names of its own for what was written to a cache."""
    if cached is None:
        return None
    details = PromptTokensDetails(min(cached, prompt))
    written = count(told, "cache_write_tokens") or count(told, "cache_creation_tokens")
    if written:
        by_age = (told or {}).get("cache_creation_token_details")
        hour = count(by_age, "ephemeral_1h_input_tokens") if isinstance(by_age, dict) else 0
        details.cache_write_tokens = min(written, prompt - details.cached_tokens)
        details.cache_write_1h_tokens = min(hour, details.cache_write_tokens)
    return details


def _details(usage: dict[str, Any], name: str) -> dict[str, Any] | None:
    found = usage.get(name)
    return found if isinstance(found, dict) else None


def _cached(answer: ForeignAnswer, usage: dict[str, Any]) -> int | None:
    """Prompt tokens found in the cache; None where the server doesn't tell.

    SGLang may list them by tier (``return_cached_tokens_details``); llama.cpp tells what was left
    to compute (``timings.prompt_n``), and newer ones what was not (``cache_n``).
    """
    timings, sglext = answer.timings, answer.sglext
    details = _details(usage, "prompt_tokens_details")
    if details:
        return count(details, "cached_tokens")
    if isinstance(sglext, dict) and isinstance(sglext.get("cached_tokens_details"), dict):
        tiers = sglext["cached_tokens_details"]
        return sum(count(tiers, tier) for tier in ("device", "host", "storage"))
    if isinstance(timings, dict) and "cache_n" in timings:
        return count(timings, "cache_n")
    if isinstance(timings, dict) and "prompt_n" in timings:
        return max(0, count(usage, "prompt_tokens") - count(timings, "prompt_n"))
    return None


def to_report(answer: ForeignAnswer) -> SpecReport | None:
    """What the backend told about its speculation; None where it told nothing, or nonsense."""
    usage = answer.counts()
    told = usage is not None and usage.get("completion_tokens") is not None
    out_tok = count(usage, "completion_tokens") if told else None
    return report_of(Told(answer.agentspec, answer.metrics, answer.sglext, answer.timings, out_tok))
