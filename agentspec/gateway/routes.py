"""What runs a model, by path: a surface, and what answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agentspec.backends.base import Backend
from agentspec.settings import ModelSettings

from .counting import TokenCounter
from .embeddings import EmbeddingService, EmbeddingsSurface
from .endpoint import Answering
from .kept import Kept
from .service import TurnService
from .surface import ErrorShape
from .surfaces.chat import ChatSurface
from .surfaces.compaction import CompactionSurface
from .surfaces.completions import CompletionsSurface
from .surfaces.messages import MessagesSurface
from .surfaces.responses import ResponsesSurface

Served = tuple[str, Answering, ErrorShape]


def served(
    service: TurnService,
    embeddings: EmbeddingService,
    models: Mapping[str, ModelSettings],
    backends: Mapping[str, Backend],
    kept: Kept,
) -> Iterator[Served]:
    """(path, what answers, how errors are spelled); all but the counts leave a ledger row."""
    responses, messages = ResponsesSurface(kept), MessagesSurface()
    for path, surface in (
        ("/v1/chat/completions", ChatSurface()),
        ("/v1/completions", CompletionsSurface()),
        ("/v1/responses", responses),
        ("/v1/responses/compact", CompactionSurface(responses)),
        ("/v1/messages", messages),
    ):
        yield path, partial(service.answer, surface), surface.errors
    surface = EmbeddingsSurface()
    yield "/v1/embeddings", partial(embeddings.answer, surface), surface.errors
    for path, surface, shape in (
        ("/v1/responses/input_tokens", responses, _responses_count),
        ("/v1/messages/count_tokens", MessagesSurface(counting=True), _messages_count),
    ):
        yield path, TokenCounter(surface, models, backends, shape).answer, surface.errors


def _responses_count(count: int) -> Any:
    return {"object": "response.input_tokens", "input_tokens": count}


def _messages_count(count: int) -> Any:
    return {"input_tokens": count}
