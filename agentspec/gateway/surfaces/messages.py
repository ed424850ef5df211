"""Anthropic Messages over the canonical turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from agentspec.backends.base import Native, PassedChunk, PassedResponse
from agentspec.gateway.surface import Caller, Started
from agentspec.wire.canonical import body_of
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage, encode
from agentspec.wire.errors import AgentspecError, InvalidRequest
from agentspec.wire.extension import SpecReport
from agentspec.wire.messages import MessagesRequest, Thinking, check_run, decode_request
from agentspec.wire.messages_errors import anthropic_body, anthropic_status
from agentspec.wire.messages_in import Translated, translate
from agentspec.wire.messages_out import MessagesWriter
from agentspec.wire.pieces import Pieces
from agentspec.wire.spelling import Name
from agentspec.wire.sse import named_event

from .reports import report_field

_PROTOCOL_HEADERS = ("anthropic-version", "anthropic-beta")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class AnthropicErrors:
    id_header = b"request-id"

    def status(self, error: AgentspecError) -> int:
        return anthropic_status(error)

    def body(self, error: AgentspecError, request_id: str) -> Any:
        return anthropic_body(error, request_id)

    def event(self, error: AgentspecError, request_id: str) -> bytes:
        return named_event("error", anthropic_body(error, request_id))


class MessagesSurface:
    """counting: requests are not run, and need not hold what only a run needs."""

    name = "messages"

    def __init__(self, *, counting: bool = False) -> None:
        self.errors = AnthropicErrors()
        self._counting = counting

    async def translate(self, body: bytes, caller: Caller) -> MessagesAsked:
        asked = decode_request(body)
        if not self._counting:
            check_run(asked)
        refused: list[InvalidRequest] = []
        strip = caller.self_hosted(asked.model)
        done = translate(asked, strip_billing=strip, refused=refused)
        headers = {n: caller.headers[n] for n in _PROTOCOL_HEADERS if n in caller.headers}
        native = Native("/messages", _FIELDS.decode(body), headers, next(iter(refused), None))
        return MessagesAsked(asked, done, done.request, body_of(done.request, done.extras), native)


@dataclass(frozen=True, slots=True)
class MessagesAsked:
    asked: MessagesRequest
    translated: Translated
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: Native

    def spelling(self) -> Iterable[Name]:
        top = self.asked.output_format is not None
        return self.translated.spelling(
            "output_format.schema" if top else "output_config.format.schema"
        )

    def answer(self, started: Started) -> MessagesAnswer:
        writer = MessagesWriter(
            started.key,
            self.request.model,
            self.translated.names,
            thinking=_thinking(self.asked.thinking),
        )
        return MessagesAnswer(writer, Pieces(f"toolu_{started.key}"), self.request, started.id)


class MessagesAnswer:
    def __init__(self, writer: MessagesWriter, pieces: Pieces, request: ChatRequest, id: str):
        self._id = id
        self._writer = writer
        self._pieces = pieces
        self._request = request
        self._last = b""

    async def whole(self, response: ChatResponse) -> bytes:
        if isinstance(response, PassedResponse):
            return response.passed
        self._writer.take(self._pieces.whole(response))
        self._writer.finish(
            self._pieces.finish_reason, response.usage, stopped_by=self._pieces.stopped_by
        )
        body = self._writer.body(self._pieces.finish_reason or "stop", response.usage)
        return encode(body | report_field(self._request, response.agentspec))

    def chunk(self, chunk: ChatChunk) -> bytes:
        if isinstance(chunk, PassedChunk):
            # What ends the answer is sent once its row is closed.
            self._last = chunk.passed if chunk.last else self._last
            return b"" if self._last else chunk.passed
        usage = None if chunk.usage is UNSET else chunk.usage
        return self._writer.take(self._pieces.read(chunk), usage)

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        if self._last:
            return self._last
        events = self._writer.take(self._pieces.end())
        more = report_field(self._request, report)
        return events + self._writer.finish(
            self._pieces.finish_reason, usage, self._pieces.stopped_by, **more
        )

    def failed(self, error: AgentspecError) -> bytes:
        return self._writer.fail(error, self._id)


def _thinking(asked: Thinking | None) -> str:
    if asked is None or asked.type == "disabled":
        return "off"
    return "omitted" if asked.display == "omitted" else "shown"
