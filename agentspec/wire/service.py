"""The small endpoints beside chat: model list and tokenize."""

from __future__ import annotations

import msgspec

from .chat import Message, Tool


class ModelCard(msgspec.Struct):
    """One entry of ``/v1/models``. The context length stands under the names that clients read.

    Defaults are written too: clients look at ``object``."""

    id: str
    created: int
    owned_by: str = "agentspec"
    object: str = "model"
    context_length: int | None = None
    max_model_len: int | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        if self.object == "model" and self.max_model_len is None:
            self.max_model_len = self.context_length


class ModelList(msgspec.Struct):
    data: list[ModelCard]
    object: str = "list"


class TokenizeRequest(msgspec.Struct, omit_defaults=True):
    """Either a plain ``prompt`` or chat ``messages`` with ``tools`` (then templated)."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None


class TokenizeResponse(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]
