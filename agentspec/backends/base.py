"""The contract between the gateway and the places where requests run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import msgspec

from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse
from agentspec.wire.errors import AgentspecError
from agentspec.wire.extension import SpecRequest
from agentspec.wire.service import ModelCard


@dataclass(frozen=True, slots=True)
class Native:
    """The client's own request, for servers that offer its protocol themselves.

    path: below the API's base, such as "/completions"; body: its JSON fields as they were sent;
    headers: those of its headers that belong to the protocol. otherwise: why a server without the
    protocol can't be asked, where it can't.
    """

    path: str
    body: dict[str, msgspec.Raw]
    headers: dict[str, str] = field(default_factory=dict)
    otherwise: AgentspecError | None = None


class PassedChunk(ChatChunk):
    """A chunk beside the event that it was read from, in the client's own protocol.

    last: nothing follows the event.
    """

    passed: bytes = b""
    last: bool = False


class PassedResponse(ChatResponse):
    """A whole answer beside its body as the server sent it, in the client's own protocol."""

    passed: bytes = b""


@dataclass(slots=True)
class CallCounts:
    """What became of an answer's tool calls where they are checked here. retried: how often the
    backend was asked again."""

    checked: bool = False
    valid: int = 0
    repaired: int = 0
    dropped: int = 0
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One request on its way to a backend.

    id: the request's id (UUIDv7 text); answers carry it as ``chatcmpl-<id>``.
    request: the decoded request; body: the client's JSON object, its values as they were sent.
    upstream_model: the model's name at the backend (``request.model`` is the name clients use).
    created_s: Unix seconds, stamped on the answer.
    extension: the ``agentspec`` object for our own engine; its cache_scope is the gateway's word.
    native: the request in another protocol that says the same, where the client spoke that.
    upstream_names: by backend, where it knows the model by another name.
    calls: filled in while the turn runs.
    """

    id: str
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    upstream_model: str
    created_s: int
    extension: SpecRequest = field(default_factory=SpecRequest)
    native: Native | None = None
    calls: CallCounts = field(default_factory=CallCounts)
    upstream_names: Mapping[str, str] = field(default_factory=dict)

    def at(self, backend: str) -> Turn:
        """The turn as that backend gets it, the model under its name there."""
        name = self.upstream_names.get(backend)
        return self if name is None else replace(self, upstream_model=name)

    @property
    def answer_id(self) -> str:
        return f"chatcmpl-{self.id}"


class Backend(Protocol):
    """A place where requests run.

    Every method raises only ``wire.errors.AgentspecError``: ``UpstreamUnreachable`` (no
    connection), ``UpstreamTimeout``, or ``UpstreamFailed`` whose ``status`` is what the backend
    said, if it did. Cancelling a call, or closing a stream, closes its connection at once.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """ "engine", "openai", "anthropic", "litellm", or a server's name (``settings``)."""
        ...

    def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        """Stream the answer. ``usage`` and ``agentspec`` may ride on any chunk; the last counts.

        A stream that breaks off, or ends before every choice has a finish_reason, raises
        ``UpstreamFailed``; it never ends as if it were whole.
        """
        ...

    async def complete(self, turn: Turn) -> ChatResponse:
        """The whole answer."""
        ...

    async def models(self) -> list[ModelCard]:
        """The models that the backend offers, under its own names."""
        ...

    async def health(self) -> bool:
        """Whether it would take a request now. Never raises."""
        ...

    async def aclose(self) -> None:
        """Close connections. The backend is not used afterwards."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """A backend that can say how many tokens a prompt has, without running it."""

    async def count_tokens(self, turn: Turn) -> int | None:
        """Tokens of the turn's messages and tools; None where the server doesn't tell."""
        ...


@runtime_checkable
class Embeds(Protocol):
    """A backend that has embeddings."""

    async def embed(self, turn: Turn) -> dict[str, msgspec.Raw]:
        """The answer to ``turn.body`` as the server gave it, its fields undecoded."""
        ...
