"""OpenAI chat completions: the canonical protocol itself, passed on as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from agentspec.gateway.render import content_event, report_event, whole_answer
from agentspec.gateway.surface import Caller, OpenAIErrors, Started
from agentspec.wire.calls import CallGate
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

    async def translate(self, body: bytes, caller: Caller) -> ChatAsked:
        try:
            return ChatAsked(decode_request(body), _FIELDS.decode(body))
        except RecursionError:
            raise InvalidRequest("The request body is nested too deeply.") from None


@dataclass(frozen=True, slots=True)
class ChatAsked:
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: None = None

    def spelling(self) -> tuple[()]:
        return ()

    def answer(self, started: Started) -> ChatAnswer:
        return ChatAnswer(self.request, f"call_{started.key}")


def _names_one(choice: Any) -> bool:
    """Whether a ``tool_choice`` names the function to be called."""
    return isinstance(choice, dict) and choice.get("type") == "function"


class ChatAnswer:
    def __init__(self, request: ChatRequest, call_ids: str):
        self._request = request
        self._call_ids = call_ids
        self._gate: CallGate | None = None
        self._pattern: ChatChunk | None = None
        self._think = ThinkFilter()

    def hold_calls(self) -> None:
        self._gate = CallGate(self._call_ids, forced=_names_one(self._request.tool_choice))

    async def whole(self, response: ChatResponse) -> bytes:
        if self._gate is not None:
            response = self._gate.whole(response)
        return encode(whole_answer(self._think.whole(response), self._request))

    def chunk(self, chunk: ChatChunk) -> bytes:
        self._pattern = self._pattern or chunk
        for choice in chunk.choices:
            # Servers open with an empty text; one that calls tools alone has none, as when whole.
            if choice.delta.role and choice.delta.content == "" and not choice.finish_reason:
                choice.delta.content = UNSET
        if self._gate is not None:
            chunk = self._gate.chunk(chunk)
        return content_event(self._think.chunk(chunk))

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        if self._gate is not None:
            self._gate.end()
        assert self._pattern is not None, "a stream has a first chunk"
        return report_event(self._pattern, self._request, usage, report) + DONE

    def failed(self, error: AgentspecError) -> bytes:
        return error_event(error)
