"""What of a backend's answer the client gets to see, and what our engine is told beyond OpenAI."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage
from agentspec.wire.extension import SpecReport, SpecRequest
from agentspec.wire.sse import event


def extension_for(request: ChatRequest, session_id: str, scope: str) -> SpecRequest:
    """The ``agentspec`` object for the engine: the client's wishes, the gateway's scope."""
    wished = request.agentspec or SpecRequest()
    return msgspec.structs.replace(wished, session=session_id, cache_scope=scope)


def whole_answer(response: ChatResponse, request: ChatRequest) -> ChatResponse:
    """The answer without the report that only clients who sent ``agentspec`` get."""
    if request.agentspec is None:
        response.agentspec = UNSET
    return response


def content_event(chunk: ChatChunk) -> bytes:
    """A chunk as an event, without reports; nothing for a chunk that held nothing else."""
    if not chunk.choices:
        return b""
    chunk.usage = chunk.agentspec = UNSET
    return event(chunk)


def report_event(
    pattern: ChatChunk, request: ChatRequest, usage: Usage | None, report: SpecReport | None
) -> bytes:
    """The last chunk: usage for clients that set include_usage, the report for those that sent
    ``agentspec``; nothing for the others. pattern: any chunk of the stream."""
    tells_usage = request.wants_usage_chunk and usage is not None
    tells_report = request.agentspec is not None and report is not None
    if not tells_usage and not tells_report:
        return b""
    return event(
        ChatChunk(
            id=pattern.id,
            created=pattern.created,
            model=pattern.model,
            choices=[],
            usage=usage if tells_usage else UNSET,
            agentspec=report if report is not None and tells_report else UNSET,
        )
    )
