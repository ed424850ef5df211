"""OpenAI text completions over the canonical turn; servers that offer them get them as sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.backends.base import Native
from agentspec.gateway.surface import Caller, OpenAIErrors, Started
from agentspec.wire.canonical import body_of
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage, encode
from agentspec.wire.completions import (
    SPELLING,
    CompletionRequest,
    CompletionWriter,
    decode_request,
    translate,
)
from agentspec.wire.errors import AgentspecError, InvalidRequest, UpstreamFailed
from agentspec.wire.extension import SpecReport
from agentspec.wire.spelling import Name
from agentspec.wire.sse import DONE, error_event, event

from .reports import report_field

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class CompletionErrors(OpenAIErrors):
    """A server without text completions answers that it knows no such path, which its client, who
    never named one to it, would not understand."""

    def status(self, error: AgentspecError) -> int:
        return super().status(_explained(error))

    def body(self, error: AgentspecError, request_id: str) -> Any:
        return super().body(_explained(error), request_id)


def _explained(error: AgentspecError) -> AgentspecError:
    if not isinstance(error, UpstreamFailed) or error.status not in _NO_SUCH_PATH:
        return error
    if error.param == "model" or "model" in f"{error.code} {error.message}".lower():
        return error
    return InvalidRequest(
        "The server behind this model has no text completions: use /v1/chat/completions. "
        f"(It answered {error.status}.)",
        param="model",
        code="unsupported_model",
    )


_NO_SUCH_PATH = (404, 405, 501)


class CompletionsSurface:
    name = "completions"

    def __init__(self) -> None:
        self.errors = CompletionErrors()

    async def translate(self, body: bytes, caller: Caller) -> CompletionsAsked:
        asked = decode_request(body)
        request = translate(asked)
        native = Native("/completions", _FIELDS.decode(body))
        return CompletionsAsked(asked, request, body_of(request), native)


@dataclass(frozen=True, slots=True)
class CompletionsAsked:
    asked: CompletionRequest
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: Native | None

    def spelling(self) -> tuple[Name, ...]:
        return SPELLING

    def answer(self, started: Started) -> CompletionsAnswer:
        return CompletionsAnswer(
            CompletionWriter(started.key, started.created_s, self.asked), self.asked, self.request
        )


class CompletionsAnswer:
    def __init__(self, writer: CompletionWriter, asked: CompletionRequest, request: ChatRequest):
        self._writer = writer
        self._asked = asked
        self._request = request

    async def whole(self, response: ChatResponse) -> bytes:
        return encode(self._writer.whole(response) | self._report(response.agentspec))

    def chunk(self, chunk: ChatChunk) -> bytes:
        shown = self._writer.chunk(chunk)
        return b"" if shown is None else event(shown)

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        if usage is None or not self._request.wants_usage_chunk:
            return DONE
        return event(self._writer.usage(usage) | self._report(report)) + DONE

    def failed(self, error: AgentspecError) -> bytes:
        return error_event(error)

    def _report(self, report: object) -> dict[str, object]:
        if self._asked.agentspec is None or not isinstance(report, SpecReport):
            return {}
        return report_field(self._request, report)
