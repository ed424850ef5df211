"""``/v1/embeddings``: passed on to a backend that has them, with a ledger row like any request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.backends.base import Backend, Embeds, Turn
from agentspec.routing.decision import Decision
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage, encode
from agentspec.wire.errors import AgentspecError, InvalidRequest
from agentspec.wire.extension import SpecReport
from agentspec.wire.fields import decode

from .exchange import Exchange
from .service import TurnService
from .surface import Answer, Caller, OpenAIErrors, Started
from .tally import Tally


class _Request(msgspec.Struct):
    model: str
    input: str | list[Any]
    encoding_format: str | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int = 0


_REQUEST = msgspec.json.Decoder(_Request)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNTS = msgspec.json.Decoder(_Counts | None)


class EmbeddingsSurface:
    name = "embeddings"

    def __init__(self) -> None:
        self.errors = OpenAIErrors()

    async def translate(self, body: bytes, caller: Caller) -> EmbeddingsAsked:
        asked = decode(_REQUEST, body)
        if not asked.input:
            raise InvalidRequest("Invalid 'input': it is empty.", param="input")
        return EmbeddingsAsked(ChatRequest(asked.model, []), _FIELDS.decode(body))


@dataclass(frozen=True, slots=True)
class EmbeddingsAsked:
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: None = None

    def spelling(self) -> tuple[()]:
        return ()

    def answer(self, started: Started) -> NoText:
        return NoText()


class NoText:
    """Embeddings are no answer in words; ``EmbeddingService`` sends what the backend gave."""

    async def whole(self, response: ChatResponse) -> bytes:
        raise AssertionError("embeddings hold no text")

    def chunk(self, chunk: ChatChunk) -> bytes:
        raise AssertionError("embeddings are not streamed")

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        raise AssertionError("embeddings are not streamed")

    def failed(self, error: AgentspecError) -> bytes:
        raise AssertionError("embeddings are not streamed")


class EmbeddingService(TurnService):
    """The service of a turn whose answer is not text."""

    async def _whole(
        self,
        turn: Turn,
        decision: Decision,
        tally: Tally,
        answer: Answer,
        exchange: Exchange,
    ) -> None:
        async def embed(backend: Backend) -> dict[str, msgspec.Raw]:
            if not isinstance(backend, Embeds):
                raise InvalidRequest(
                    f"Backend '{backend.name}' has no embeddings.",
                    param="model",
                    code="unsupported_model",
                )
            return await backend.embed(turn.at(backend.name))

        with tally.waiting(self._clock.tick_s):
            found = await self._attempts.first_success(decision, embed)
        tally.usage = _usage(found.get("usage"))
        found["model"] = msgspec.Raw(encode(turn.request.model))
        self._ledger.close(tally.finished(self._clock.tick_s()))
        await exchange.send_json(200, encode(found), {})


def _usage(raw: msgspec.Raw | None) -> Usage | None:
    """The count of a backend that gives one."""
    try:
        counts = _COUNTS.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return Usage(counts.prompt_tokens, 0, counts.prompt_tokens) if counts else None
