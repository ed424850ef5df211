"""Anthropic's API, or another server that speaks Messages.

A client that speaks Messages gets what the server sends, byte for byte, and the server gets what
the client sent: cache marks, signed thinking, betas and server tools stay whole. Only the model's
name and the credential are the gateway's. Requests of other protocols go through litellm.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from agentspec.settings import BackendSettings
from agentspec.wire.chat import ChatChunk, ChatResponse, Choice, ChunkChoice, Delta, encode
from agentspec.wire.errors import UpstreamFailed
from agentspec.wire.messages_read import (
    Event,
    MessagesReader,
    ending,
    message_from,
    usage_from,
)
from agentspec.wire.service import ModelCard
from agentspec.wire.sse import EventParser, passed_event

from .base import Native, PassedChunk, PassedResponse, Turn
from .foreign import nested
from .http import HttpClient
from .litellm import LiteLLMBackend
from .verdict import error_from_event

VERSION = "2023-06-01"
_PATH = "/messages"
# What may be counted of a request (the rest is refused there).
_COUNTED = frozenset(
    ("messages", "system", "tools", "tool_choice", "thinking", "output_config", "mcp_servers")
)
T = TypeVar("T")
_EVENT = msgspec.json.Decoder(Event)
_FIELDS = msgspec.json.Decoder(dict[str, Any])


class AnthropicBackend:
    """One account. ``Turn.upstream_model`` is the model's plain name.

    Raises ``SettingsError`` when ``api_key_env`` names a variable that is not set.
    """

    kind = "anthropic"
    native_paths = frozenset({_PATH})

    def __init__(self, name: str, settings: BackendSettings):
        self.name = name
        self.call_retries = settings.retries_of_calls
        self._http = HttpClient(name, settings, key_header="x-api-key")
        self._translated = LiteLLMBackend(name, settings, provider="anthropic")

    async def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        native = _native(turn)
        if native is None:
            async with aclosing(self._translated.chat(turn)) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        reader = MessagesReader()
        body, headers = _body(native, turn, stream=True), _headers(native)
        async with (
            self._http.post(_PATH, body, headers=headers) as response,
            aclosing(self._http.pieces(response)) as pieces,
        ):
            parser = EventParser()
            async for piece in pieces:
                for data in parser.feed(piece):
                    yield self._chunk(reader, data, turn)
                    if reader.ended:
                        await self._http.settle(response)
                        return
        raise UpstreamFailed(f"Backend '{self.name}' ended its answer before it was finished.")

    def _chunk(self, reader: MessagesReader, data: bytes, turn: Turn) -> ChatChunk:
        """One event, passed on as it is, and what it says in a chunk's words."""
        event = _read(_EVENT, data)
        if event.type == "error":
            raise self._failed(event.error)
        delta = reader.read(event)
        chunk = PassedChunk(turn.answer_id, turn.created_s, turn.request.model, [])
        chunk.passed = passed_event(event.type, data)
        chunk.last = reader.ended
        if event.type == "message_delta":
            choice = ChunkChoice(0, Delta(), reader.finish_reason)
            if reader.stopped_by is not None:
                choice.stop_reason = reader.stopped_by
            chunk.choices = [choice]
        elif delta is not None:
            chunk.choices = [ChunkChoice(0, delta)]
        if event.type in ("message_start", "message_delta"):
            chunk.usage = reader.usage
        return chunk

    def _failed(self, told: Any) -> UpstreamFailed:
        """The error of an event, or of an answer that came as if all were well."""
        failed = error_from_event(self.name, told)
        shaped = isinstance(told, dict) and isinstance(told.get("type"), str)
        if shaped and failed.code != "upstream_credential_refused":
            failed.own = {"type": "error", "error": told}
        return failed

    async def complete(self, turn: Turn) -> ChatResponse:
        native = _native(turn)
        if native is None:
            return await self._translated.complete(turn)
        body, headers = _body(native, turn, stream=False), _headers(native)
        async with self._http.post(_PATH, body, headers=headers) as response:
            raw = await self._http.read(response)
        fields = _read(_FIELDS, raw)
        if fields.get("type") == "error":
            raise self._failed(fields.get("error"))
        reason, stopped_by = ending(fields)
        if reason is None:
            raise UpstreamFailed(f"Backend '{self.name}' ended its answer before it was finished.")
        choice = Choice(0, message_from(fields), reason)
        if stopped_by is not None:
            choice.stop_reason = stopped_by
        answer = PassedResponse(turn.answer_id, turn.created_s, turn.request.model, [choice])
        answer.usage = usage_from(fields.get("usage"))
        answer.passed = raw
        return answer

    async def count_tokens(self, turn: Turn) -> int | None:
        """Anthropic's own count, for a request that came as Messages."""
        native = _native(turn)
        if native is None:
            return None
        wanted = {name: raw for name, raw in native.body.items() if name in _COUNTED}
        body = encode(wanted | {"model": turn.upstream_model})
        path = f"{_PATH}/count_tokens"
        async with self._http.post(path, body, headers=_headers(native)) as response:
            raw = await self._http.read(response)
        count = _read(_FIELDS, raw).get("input_tokens")
        return count if isinstance(count, int) else None

    async def models(self) -> list[ModelCard]:
        return []

    async def health(self) -> bool:
        """A commercial API counts as healthy: asking it costs money."""
        return True

    async def aclose(self) -> None:
        await self._http.aclose()
        await self._translated.aclose()


def _read(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UpstreamFailed(f"The backend's answer could not be read: {error}") from None
    except RecursionError:
        raise nested() from None


def _native(turn: Turn) -> Native | None:
    return turn.native if turn.native is not None and turn.native.path == _PATH else None


def _headers(native: Native) -> dict[str, str]:
    return {"anthropic-version": VERSION} | native.headers


def _body(native: Native, turn: Turn, *, stream: bool) -> bytes:
    body = dict(native.body)
    body.pop("agentspec", None)
    body["model"] = msgspec.Raw(encode(turn.upstream_model))
    body["stream"] = msgspec.Raw(b"true" if stream else b"false")
    return encode(body)
