"""What OpenAI-compatible servers really send, and its translation into wire structs.

Anything may be missing: ``id``, ``object``, ``created``, ``usage``, even ``index``. How each server
tells the acceptance of drafted tokens stands in ``acceptance.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatResponse,
    Choice,
    ChoiceLogprobs,
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


class ForeignFunction(msgspec.Struct):
    """arguments: JSON text; Ollama and others send the object itself."""

    name: str | None = None
    arguments: Any = None

    def call(self) -> FunctionCall:
        text = self.arguments
        if text is not None and not isinstance(text, str):
            text = msgspec.json.encode(text).decode()
        return FunctionCall(name=self.name, arguments=text)


class ForeignCall(msgspec.Struct):
    function: ForeignFunction | None = None
    id: str | None = None
    type: str | None = None
    index: int | None = None


class ForeignText(msgspec.Struct):
    """A message or a delta. ``reasoning`` is how vLLM and others spell ``reasoning_content``."""

    role: str | None = None
    content: str | None | UnsetType = UNSET
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ForeignCall] | None = None


class ForeignChoice(msgspec.Struct):
    """The stop string is ``stop_reason`` with vLLM (a number for a token), ``matched_stop`` with
    SGLang."""

    index: int = 0
    delta: ForeignText | None = None
    message: ForeignText | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: Any = None
    matched_stop: Any = None

    def stopped_by(self) -> str | UnsetType:
        found = self.matched_stop if self.stop_reason is None else self.stop_reason
        return found if isinstance(found, str) else UNSET


class ForeignUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class ForeignAnswer(msgspec.Struct):
    """A whole answer or one chunk of a stream; ``error`` alone when the backend gave up."""

    choices: list[ForeignChoice] | None = None
    usage: ForeignUsage | None = None
    system_fingerprint: str | None = None
    error: Any = None
    agentspec: Any = None
    metrics: Any = None
    sglext: Any = None
    timings: Any = None


_DECODER = msgspec.json.Decoder(ForeignAnswer)
# vLLM's and SGLang's words for a request that was given up within.
_BROKEN = frozenset(("abort", "error", "cancelled", "canceled"))


def decode(data: bytes) -> ForeignAnswer:
    """Decode one answer or chunk. Raises ``UpstreamFailed`` when it is none."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UpstreamFailed(f"The backend's answer could not be read: {error}") from None


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
    text = choice.delta or _completion(choice)
    calls = [
        ToolCallDelta(
            index=position if call.index is None else call.index,
            id=call.id or None,
            type=call.type,
            function=call.function.call() if call.function else None,
        )
        for position, call in enumerate(text.tool_calls or [])
    ]
    delta = Delta(
        role=text.role,
        content=text.content,
        reasoning_content=text.reasoning_content or text.reasoning,
        refusal=text.refusal,
        tool_calls=calls or None,
    )
    _refuse_broken(choice)
    return ChunkChoice(
        choice.index, delta, choice.finish_reason, choice.logprobs, choice.stopped_by()
    )


def _choice(choice: ForeignChoice) -> Choice:
    text = choice.message or _completion(choice)
    message = AnswerMessage(
        role=text.role or "assistant",
        content=None if text.content is UNSET else text.content,
        refusal=text.refusal,
    )
    if text.tool_calls:
        message.tool_calls = [
            ToolCall(function=(call.function or ForeignFunction()).call(), id=call.id)
            for call in text.tool_calls
        ]
    reasoning = text.reasoning_content or text.reasoning
    if reasoning:
        message.reasoning_content = reasoning
    _refuse_broken(choice)
    return Choice(choice.index, message, choice.finish_reason, choice.logprobs, choice.stopped_by())


def _refuse_broken(choice: ForeignChoice) -> None:
    """Servers end an answer that they gave up as they end a whole one, but for the reason."""
    if choice.finish_reason in _BROKEN:
        raise UpstreamFailed(f"The backend gave its answer up ('{choice.finish_reason}').")


def to_usage(answer: ForeignAnswer) -> Usage | None:
    """Token counts; what is missing or negative counts as none. Parts are at most their whole."""
    usage = answer.usage
    if usage is None:
        return None
    prompt = max(0, usage.prompt_tokens or 0)
    completion = max(0, usage.completion_tokens or 0)
    cached, outputs = _cached(answer), usage.completion_tokens_details
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=_inputs(usage.prompt_tokens_details, cached, prompt),
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


def _cached(answer: ForeignAnswer) -> int | None:
    """Prompt tokens found in the cache; None where the server doesn't tell.

    SGLang may list them by tier (``return_cached_tokens_details``); llama.cpp tells what was left
    to compute (``timings.prompt_n``), and newer ones what was not (``cache_n``).
    """
    usage, timings, sglext = answer.usage, answer.timings, answer.sglext
    assert usage is not None
    if usage.prompt_tokens_details:
        return count(usage.prompt_tokens_details, "cached_tokens")
    if isinstance(sglext, dict) and isinstance(sglext.get("cached_tokens_details"), dict):
        tiers = sglext["cached_tokens_details"]
        return sum(count(tiers, tier) for tier in ("device", "host", "storage"))
    if isinstance(timings, dict) and "cache_n" in timings:
        return count(timings, "cache_n")
    if isinstance(timings, dict) and "prompt_n" in timings:
        return max(0, (usage.prompt_tokens or 0) - count(timings, "prompt_n"))
    return None


def to_report(answer: ForeignAnswer) -> SpecReport | None:
    """What the backend told about its speculation; None where it told nothing, or nonsense."""
    out_tok = answer.usage.completion_tokens if answer.usage is not None else None
    return report_of(Told(answer.agentspec, answer.metrics, answer.sglext, answer.timings, out_tok))
