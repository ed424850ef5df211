"""The small endpoints beside chat: model list (in both vendors' shapes) and tokenize."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

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


def anthropic_card(card: ModelCard) -> dict[str, Any]:
    """A model as Anthropic's list shows it. Claude Code offers those whose id begins "claude"."""
    created = datetime.fromtimestamp(card.created, UTC)
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "max_input_tokens": card.context_length,
    }


def anthropic_list(models: ModelList) -> dict[str, Any]:
    cards = [anthropic_card(card) for card in models.data]
    ends = {
        "first_id": cards[0]["id"] if cards else None,
        "last_id": cards[-1]["id"] if cards else None,
    }
    return {"data": cards, "has_more": False, **ends}


class DraftCard(msgspec.Struct):
    """A draft that the engine has loaded. taps: decoder layers whose outputs it looks at."""

    name: str
    path: str
    taps: list[int]
    object: str = "draft"


class DraftList(msgspec.Struct):
    data: list[DraftCard]
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
