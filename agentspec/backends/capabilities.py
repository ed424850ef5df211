"""What a backend can do, and what a request needs; known without asking anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import msgspec

from agentspec.settings import BackendSettings
from agentspec.settings_routing import Capability
from agentspec.wire.chat import ChatRequest
from agentspec.wire.extension import SpecRequest

ALL: frozenset[str] = frozenset(get_args(Capability))
# What a kind cannot do, whatever model it serves. "grammar" is our engine's own extension.
_LACKS: dict[str, frozenset[str]] = {
    "engine": frozenset({"images", "embeddings"}),
    "sglang": frozenset({"grammar"}),
    "vllm": frozenset({"grammar"}),
    "llamacpp": frozenset({"grammar", "suffix"}),
    "openai": frozenset({"grammar"}),
    "anthropic": frozenset({"grammar", "suffix", "logprobs", "embeddings"}),
    "litellm": frozenset({"grammar", "suffix", "embeddings"}),
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """can: of ``ALL``. context_tokens: prompt and answer together; None: not known.

    constrained: it holds tool calls to their schemas itself.
    """

    can: frozenset[str] = ALL
    context_tokens: int | None = None
    constrained: bool = False

    def lacks(self, needs: frozenset[str]) -> frozenset[str]:
        return needs - self.can


def abilities(settings: BackendSettings) -> Abilities:
    """By the backend's kind, less what its settings say that it lacks."""
    return Abilities(
        can=ALL - _LACKS[settings.kind] - frozenset(settings.lacks),
        context_tokens=settings.context_tokens,
        constrained=settings.retries_of_calls is None,
    )


def needs_of(
    request: ChatRequest,
    extension: SpecRequest,
    body: Mapping[str, msgspec.Raw],
    *,
    embeddings: bool = False,
) -> frozenset[str]:
    """What a backend must be able to do for this request. body: its JSON fields."""
    if embeddings:
        return frozenset({"embeddings"})
    needs = set()
    if request.tools and request.tool_choice != "none":
        needs.add("tools")
    wanted = request.response_format
    if wanted is not None and wanted.type in ("json_object", "json_schema"):
        needs.add("schema")
    if extension.grammar is not None:
        needs.add("grammar")
    if extension.suffix is not None:
        needs.add("suffix")
    if bytes(body.get("logprobs", b"")).strip() not in (b"", b"null", b"false", b"0"):
        needs.add("logprobs")
    messages = bytes(body.get("messages", b""))
    if b'"image_url"' in messages or b'"input_image"' in messages:
        needs.add("images")
    return frozenset(needs)
