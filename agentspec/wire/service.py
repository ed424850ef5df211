"""The small endpoints beside chat: model list (in both vendors' shapes) and tokenize."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from .chat import Message, Tool
from .errors import InvalidRequest

MOST_MODELS = 1000
"""On one page; Anthropic's bound."""


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


def anthropic_list(models: ModelList, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The list as Anthropic's clients page through it: ``limit``, ``after_id``, ``before_id``;
    without a limit it is whole. Raises ``InvalidRequest``."""
    asked = query or {}
    cards = [anthropic_card(card) for card in models.data]
    names = [card["id"] for card in cards]
    for name in ("after_id", "before_id"):
        if name in asked and asked[name] not in names:
            raise InvalidRequest(f"{name}: there is no such model", param=name)
    first = names.index(asked["after_id"]) + 1 if "after_id" in asked else 0
    last = names.index(asked["before_id"]) if "before_id" in asked else len(cards)
    found = cards[first:last]
    limit = asked.get("limit", str(MOST_MODELS))
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= MOST_MODELS):
        raise InvalidRequest(f"limit: Input should be 1 to {MOST_MODELS}", param="limit")
    backwards = "before_id" in asked and "after_id" not in asked
    page = found[-int(limit) :] if backwards else found[: int(limit)]
    return {
        "data": page,
        "has_more": len(found) > len(page),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


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
