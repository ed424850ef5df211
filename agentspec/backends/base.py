"""The contract between the gateway and the places where requests run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse
from agentspec.wire.extension import SpecRequest
from agentspec.wire.service import ModelCard


@dataclass(frozen=True, slots=True)
class Turn:
    """One request on its way to a backend.

    id: the request's id (UUIDv7 text); answers carry it as ``chatcmpl-<id>``.
    request: the decoded request; body: the client's JSON object, its values as they were sent.
    upstream_model: the model's name at the backend (``request.model`` is the name clients use).
    created_s: Unix seconds, stamped on the answer.
    extension: the ``agentspec`` object for our own engine; its cache_scope is the gateway's word.
    """

    id: str
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    upstream_model: str
    created_s: int
    extension: SpecRequest = field(default_factory=SpecRequest)

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
        """ "engine", "openai" or "litellm"."""
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
