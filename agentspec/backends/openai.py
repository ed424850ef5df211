"""Any OpenAI-compatible server. The client's JSON goes on as it was sent.

Only ``model``, ``stream``, ``stream_options`` (usage is always asked for) and ``agentspec`` are
replaced, the role "developer" is written "system", which every server knows, and an output limit
that the server has no room for is lowered. The client's credential never goes on: the backend gets
its own, from the settings.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import msgspec
from aiohttp import ClientResponse

from agentspec.settings import BackendSettings
from agentspec.wire.chat import ChatChunk, ChatResponse, encode
from agentspec.wire.context import overflow
from agentspec.wire.errors import AgentspecError, UpstreamFailed
from agentspec.wire.extension import SpecRequest
from agentspec.wire.service import ModelCard
from agentspec.wire.sse import EventParser

from .base import Native, Turn
from .foreign import ForeignAnswer, decode, to_chunk, to_response
from .http import HttpClient
from .verdict import error_from_event

_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
# How servers say that they have no such path, or that it wants another body.
_NO_COUNT = (400, 404, 405, 422, 501)
_FREE_CHOICES = (b'"auto"', b'"none"', b"null")


class _ForeignCard(msgspec.Struct):
    id: str
    created: int = 0
    owned_by: str = ""
    context_length: int | None = None
    max_model_len: int | None = None


class _ForeignCards(msgspec.Struct):
    data: list[_ForeignCard] = []


class _Count(msgspec.Struct):
    count: int


_COUNT = msgspec.json.Decoder(_Count)


class OpenAIBackend:
    """An OpenAI-compatible URL: a commercial API, or a server that ``served.py`` doesn't know."""

    kind = "openai"
    native_paths = frozenset({"/completions"})
    stream_options = msgspec.Raw(b'{"include_usage":true}')

    def __init__(self, name: str, settings: BackendSettings):
        self.name = name
        self.call_retries = settings.retries_of_calls
        self._http = HttpClient(name, settings)

    def extension(self, turn: Turn) -> SpecRequest | None:
        """The ``agentspec`` object to send: none to a server that isn't ours."""
        return None

    def path(self, turn: Turn) -> str:
        """Where the request goes, below the API's base."""
        native = self._native(turn)
        return native.path if native else "/chat/completions"

    def _native(self, turn: Turn) -> Native | None:
        offered = turn.native is not None and turn.native.path in self.native_paths
        return turn.native if offered else None

    def upstream_body(self, turn: Turn, *, stream: bool) -> dict[str, msgspec.Raw]:
        """The JSON fields to send. ``turn.body`` isn't changed."""
        native = self._native(turn)
        body = dict(native.body if native else turn.body)
        body.pop("agentspec", None)
        extension = self.extension(turn)
        if extension is not None:
            body["agentspec"] = msgspec.Raw(encode(extension))
        body["model"] = msgspec.Raw(encode(turn.upstream_model))
        body["stream"] = _TRUE if stream else _FALSE
        if stream:
            body["stream_options"] = self.stream_options
        else:
            body.pop("stream_options", None)
        _drop_empty_tools(body)
        if self.kind != "engine":
            _name_developers_system(body)
        return body

    async def _open(self, stack: AsyncExitStack, turn: Turn, *, stream: bool) -> ClientResponse:
        """The 200 answer. A server that refuses the output limit for want of room is asked once
        more, with the limit that it says would fit."""
        body = self.upstream_body(turn, stream=stream)
        try:
            return await stack.enter_async_context(self._http.post(self.path(turn), encode(body)))
        except UpstreamFailed as error:
            if error.status is None or not 400 <= error.status < 500:
                raise
            if not _lower_limit(body, error.message):
                raise
        return await stack.enter_async_context(self._http.post(self.path(turn), encode(body)))

    async def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        open_choices: set[int] = set()
        finished: set[int] = set()
        async with AsyncExitStack() as stack:
            response = await self._open(stack, turn, stream=True)
            answers = await stack.enter_async_context(aclosing(self._events(response)))
            async for answer in answers:
                for choice in answer.choices or ():
                    open_choices.add(choice.index)
                    if choice.finish_reason:
                        finished.add(choice.index)
                yield to_chunk(answer, turn)
        if not finished or open_choices - finished:
            raise UpstreamFailed(f"Backend '{self.name}' ended its answer before it was finished.")

    async def _events(self, response: ClientResponse) -> AsyncGenerator[ForeignAnswer]:
        """The decoded events up to ``[DONE]`` or the end of the body; a server that doesn't stream
        sends its whole answer as one."""
        if response.content_type == "application/json":
            yield self._answer(await self._http.read(response))
            return
        parser = EventParser()
        async with aclosing(self._http.pieces(response)) as pieces:
            async for piece in pieces:
                for data in parser.feed(piece):
                    if data == b"[DONE]":
                        await self._http.settle(response)
                        return
                    yield self._answer(data)

    def _answer(self, data: bytes) -> ForeignAnswer:
        """Raises ``UpstreamFailed`` where it is an error, or unreadable."""
        answer = decode(data)
        failure = answer.failure()
        if failure is not None:
            raise error_from_event(self.name, failure)
        return answer

    async def complete(self, turn: Turn) -> ChatResponse:
        async with AsyncExitStack() as stack:
            response = await self._open(stack, turn, stream=False)
            answer = self._answer(await self._http.read(response))
        return to_response(answer, turn)

    async def count_tokens(self, turn: Turn) -> int | None:
        """vLLM's and our own ``/tokenize``; None where the server has none, or another one."""
        wanted = {name: turn.body[name] for name in ("messages", "tools") if name in turn.body}
        body = encode({"model": turn.upstream_model, **wanted})
        try:
            async with self._http.post("/tokenize", body, base=self._http.origin) as response:
                return _COUNT.decode(await self._http.read(response)).count
        except UpstreamFailed as error:
            if error.status in _NO_COUNT:
                return None
            raise
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            return None

    async def embed(self, turn: Turn) -> dict[str, msgspec.Raw]:
        body = turn.body | {"model": msgspec.Raw(encode(turn.upstream_model))}
        async with self._http.post("/embeddings", encode(body)) as response:
            raw = await self._http.read(response)
        try:
            return _FIELDS.decode(raw)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            raise UpstreamFailed(f"Backend '{self.name}': unreadable embeddings: {error}") from None

    async def models(self) -> list[ModelCard]:
        raw = await self._http.get(f"{self._http.base}/models")
        try:
            cards = msgspec.json.decode(raw, type=_ForeignCards).data
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UpstreamFailed(f"Backend '{self.name}': unreadable model list: {error}") from None
        return [
            ModelCard(
                id=card.id,
                created=card.created,
                owned_by=card.owned_by,
                context_length=card.context_length or card.max_model_len,
                backend=self.name,
            )
            for card in cards
        ]

    async def health(self) -> bool:
        try:
            await self._http.get(f"{self._http.base}/models")
        except AgentspecError:
            return False
        return True

    async def aclose(self) -> None:
        await self._http.aclose()


def _drop_empty_tools(body: dict[str, msgspec.Raw]) -> None:
    """Agents send ``tools: []`` when they compact; vLLM refuses it, and a free choice beside it."""
    tools = body.get("tools")
    if tools is None or bytes(tools).strip().replace(b" ", b"") not in (b"[]", b"null"):
        return
    del body["tools"]
    choice = body.get("tool_choice")
    if choice is not None and bytes(choice).strip() in _FREE_CHOICES:
        del body["tool_choice"]


def _lower_limit(body: dict[str, msgspec.Raw], message: str) -> bool:
    """Bring the output limit down to the room that an error told; False where that is no help."""
    found = overflow(message)
    lowered = False
    for name in ("max_tokens", "max_completion_tokens"):
        limit = msgspec.json.decode(body[name]) if name in body else None
        if found is not None and isinstance(limit, int) and 0 < found.room < limit:
            body[name] = msgspec.Raw(encode(found.room))
            lowered = True
    return lowered


def _name_developers_system(body: dict[str, msgspec.Raw]) -> None:
    if b'"developer"' not in bytes(body.get("messages", b"")):
        return
    messages = msgspec.json.decode(body["messages"], type=list[dict[str, msgspec.Raw]])
    for message in messages:
        if bytes(message.get("role", b"")) == b'"developer"':
            message["role"] = msgspec.Raw(b'"system"')
    body["messages"] = msgspec.Raw(encode(messages))
