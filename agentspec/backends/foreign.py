"""What OpenAI-compatible servers really send, and its translation into wire structs.

Anything may be missing: ``id``, ``object``, ``created``, ``usage``, even ``index``. Acceptance of
drafted tokens comes in four spellings, tried in this order:

- ``agentspec``: our engine's own report;
- ``metrics.speculative_decoding``: vLLM (>= 0.29, --per-request-spec-decode-metrics);
- ``sglext.spec_tokens_details``: SGLang (return_spec_tokens_details);
- ``timings.draft_n`` and ``draft_n_accepted``: llama.cpp.
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
from agentspec.wire.extension import SourceCount, SpecReport, report_from

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
    if answer.usage is not None:
        chunk.usage = to_usage(answer.usage)
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
        usage=to_usage(answer.usage) if answer.usage else None,
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


def to_usage(usage: ForeignUsage) -> Usage:
    """Token counts; what is missing or negative counts as none."""
    prompt = max(0, usage.prompt_tokens or 0)
    completion = max(0, usage.completion_tokens or 0)
    inputs, outputs = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptTokensDetails(_count(inputs, "cached_tokens"))
        if inputs
        else None,
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=_count(outputs, "reasoning_tokens"),
            accepted_prediction_tokens=_count(outputs, "accepted_prediction_tokens"),
            rejected_prediction_tokens=_count(outputs, "rejected_prediction_tokens"),
        )
        if outputs
        else None,
    )


def to_report(answer: ForeignAnswer) -> SpecReport | None:
    """What the backend told about its speculation; None where it told nothing, or nonsense."""
    if answer.agentspec is not None:
        try:
            return report_from(answer.agentspec)
        except msgspec.ValidationError:
            return None
    if isinstance(answer.metrics, dict):
        return _vllm(answer.metrics.get("speculative_decoding"))
    if isinstance(answer.sglext, dict):
        return _sglang(answer.sglext.get("spec_tokens_details"))
    if isinstance(answer.timings, dict) and "draft_n" in answer.timings:
        return _report("draft", answer.timings, "draft_n", "draft_n_accepted")
    return None


def _vllm(found: Any) -> SpecReport | None:
    report = _report("draft", found, "num_draft_tokens", "num_accepted_draft_tokens")
    return report and _with_steps(report, found, "num_spec_steps", "acceptance_histogram")


def _sglang(found: Any) -> SpecReport | None:
    for drafted, accepted, hist in (
        ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_correct_drafts_histogram"),
        ("spec_draft_token_num", "spec_accept_token_num", "spec_accept_histogram"),
    ):
        report = _report("draft", found, drafted, accepted)
        if report:
            return _with_steps(report, found, "spec_verify_ct", hist)
    return None


def _report(source: str, found: Any, drafted: str, accepted: str) -> SpecReport | None:
    if not isinstance(found, dict) or drafted not in found:
        return None
    count = SourceCount(_count(found, drafted), _count(found, accepted))
    return SpecReport(sources={source: count}) if count.accepted <= count.drafted else None


def _with_steps(report: SpecReport, found: dict[str, Any], steps: str, hist: str) -> SpecReport:
    """Add the step count, and the histogram where it agrees with it."""
    report.steps = _count(found, steps)
    dense = found.get(hist)
    if isinstance(dense, list) and all(isinstance(n, int) for n in dense):
        report.hist = dense if sum(dense) == report.steps else []
    return report


def _count(found: dict[str, Any] | None, key: str) -> int:
    value = (found or {}).get(key)
    return value if isinstance(value, int) and value >= 0 else 0
