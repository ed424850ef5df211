"""OpenAI chat completions: the canonical protocol itself, passed on as it comes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from agentspec.gateway.render import content_event, report_event, whole_answer
from agentspec.gateway.surface import Caller, OpenAIErrors, Started
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage, decode_request, encode
from agentspec.wire.errors import AgentspecError, InvalidRequest
from agentspec.wire.extension import SpecReport
from agentspec.wire.sse import DONE, error_event
from agentspec.wire.think import ThinkFilter

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ChatSurface:
    name = "chat"

    def __init__(self) -> None:
        self.errors = OpenAIErrors()

    def translate(self, body: bytes, caller: Caller) -> ChatAsked:
        try:
            return ChatAsked(decode_request(body), _FIELDS.decode(body))
        except RecursionError:
            raise InvalidRequest("The request body is nested too deeply.") from None


@dataclass(frozen=True, slots=True)
class ChatAsked:
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: None = None

    def answer(self, started: Started) -> ChatAnswer:
        return ChatAnswer(self.request)


class ChatAnswer:
    def __init__(self, request: ChatRequest):
        self._request = request
        self._pattern: ChatChunk | None = None
        self._think = ThinkFilter()

    def whole(self, response: ChatResponse) -> bytes:
        return encode(whole_answer(self._think.whole(response), self._request))

    def chunk(self, chunk: ChatChunk) -> bytes:
        self._pattern = self._pattern or chunk
        return content_event(self._think.chunk(chunk))

    def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        assert self._pattern is not None, "a stream has a first chunk"
        return report_event(self._pattern, self._request, usage, report) + DONE

    def failed(self, error: AgentspecError) -> bytes:
        return error_event(error)
