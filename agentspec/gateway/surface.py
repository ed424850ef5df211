"""A surface: one of the protocols that clients speak, as the service of a turn sees it.

The service knows one kind of request (``ChatRequest``) and one kind of answer (its chunks); a
surface translates on both sides. Written once for each protocol in ``surfaces/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentspec.backends.base import Native
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage
from agentspec.wire.errors import AgentspecError, http_status, openai_body
from agentspec.wire.extension import SpecReport
from agentspec.wire.spelling import Name
from agentspec.wire.sse import error_event


class ErrorShape(Protocol):
    """How a protocol spells an error.

    id_header: the response header by which its clients know the request's id.
    """

    @property
    def id_header(self) -> bytes: ...

    def status(self, error: AgentspecError) -> int: ...

    def body(self, error: AgentspecError, request_id: str) -> Any:
        """The JSON value of an error answer."""
        ...

    def event(self, error: AgentspecError, request_id: str) -> bytes:
        """The event that ends a broken stream."""
        ...


class OpenAIErrors:
    """OpenAI's spelling; a stream ends with an error chunk and no ``[DONE]``."""

    id_header = b"x-request-id"

    def status(self, error: AgentspecError) -> int:
        return http_status(error)

    def body(self, error: AgentspecError, request_id: str) -> Any:
        return openai_body(error)

    def event(self, error: AgentspecError, request_id: str) -> bytes:
        return error_event(error)


class Answer(Protocol):
    """One answer in a surface's protocol: it is either sent whole, or written as events."""

    async def whole(self, response: ChatResponse) -> bytes:
        """The body of an answer that was not streamed. Raises ``UpstreamFailed`` for a torn one."""
        ...

    def chunk(self, chunk: ChatChunk) -> bytes:
        """The events for one chunk; maybe none."""
        ...

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        """The last events of a stream that came to its end. Raises as ``whole`` does."""
        ...

    def failed(self, error: AgentspecError) -> bytes:
        """The last event of a stream that broke."""
        ...


@runtime_checkable
class HoldsCalls(Protocol):
    """An answer that passes tool calls on as they come, unless it is told to hold them."""

    def hold_calls(self) -> None:
        """The backend is one that sends calls in pieces, or torn. Called before the first chunk."""
        ...


@dataclass(frozen=True, slots=True)
class Started:
    """What is known when a request was named: the parts of its answer's ids and stamps."""

    id: str
    created_s: int

    @property
    def key(self) -> str:
        """The id as a word, for ids of other kinds."""
        return self.id.replace("-", "")


class Asked(Protocol):
    """One request, translated.

    request: the chat request that says the same; body: its JSON fields, for a backend.
    native: the request as it was sent, where some servers offer the same protocol.
    """

    @property
    def request(self) -> ChatRequest: ...

    @property
    def body(self) -> dict[str, msgspec.Raw]: ...

    @property
    def native(self) -> Native | None: ...

    def answer(self, started: Started) -> Answer: ...

    def spelling(self) -> Iterable[Name]:
        """The chat request's fields as the client knows them (``wire/spelling.py``)."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. headers: names in lower case; scope: the tenant, whose data are his alone.

    self_hosted: whether a model of that name runs on servers of one's own (not on a vendor's).
    """

    headers: Mapping[str, str]
    scope: str
    self_hosted: Callable[[str], bool] = lambda _: True


class Surface(Protocol):
    """A protocol. name: its word in the ledger's column ``surface``."""

    @property
    def name(self) -> str: ...

    @property
    def errors(self) -> ErrorShape: ...

    async def translate(self, body: bytes, caller: Caller) -> Asked:
        """Decode and translate a request. Raises ``InvalidRequest`` naming the field."""
        ...
