"""How many tokens a request's prompt has, asked of the backend it would run on.

``/v1/messages/count_tokens`` and ``/v1/responses/input_tokens``. Nothing runs, so the ledger has no
row of it. Where no backend can tell, the count is estimated, and a header says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agentspec.backends.base import Backend, CountsTokens, Turn
from agentspec.backends.checking import passes
from agentspec.settings import ModelSettings
from agentspec.wire.chat import ChatRequest, encode
from agentspec.wire.errors import InvalidRequest, ModelNotFound, UpstreamFailed
from agentspec.wire.nesting import check_nesting

from .body import half_a_character
from .exchange import Exchange
from .identity import Identity, canonical_names
from .prompt_size import prompt_tokens
from .surface import Asked, Caller, Surface

ESTIMATED = {"x-agentspec-token-count": "estimated"}


class TokenCounter:
    """Counts for one surface. shape: the answer's JSON value for a count."""

    def __init__(
        self,
        surface: Surface,
        models: Mapping[str, ModelSettings],
        backends: Mapping[str, Backend],
        shape: Callable[[int], Any],
    ):
        self._surface = surface
        self._models = models
        self._canonical = canonical_names(models)
        self._backends = backends
        self._shape = shape

    async def answer(
        self, body: bytes, headers: Mapping[str, str], identity: Identity, exchange: Exchange
    ) -> None:
        """Answer one request. Raises ``AgentspecError``."""
        check_nesting(body)
        try:
            asked = await self._surface.translate(body, Caller(headers, identity.scope))
        except InvalidRequest as error:
            raise half_a_character(body, error) from None
        model = self._models.get(asked.request.model)
        if model is None:
            raise ModelNotFound(
                f"The model '{asked.request.model}' does not exist here.", param="model"
            )
        identity.require(asked.request.model, self._canonical)
        request, fields = _as_run(asked)
        turn = Turn(
            id="",
            request=request,
            body=fields,
            upstream_model=model.upstream_name or asked.request.model,
            created_s=0,
            native=asked.native,
        )
        refused = asked.native.otherwise if asked.native is not None else None
        native = any(passes(self._backends[name], turn) for name in model.backends)
        if refused is not None and not native:
            raise refused
        count = await self._count(turn, model)
        told = {} if count is not None else ESTIMATED
        if count is None:
            count = prompt_tokens(request)
        await exchange.send_json(200, encode(self._shape(count)), told)

    async def _count(self, turn: Turn, model: ModelSettings) -> int | None:
        """The first count that a backend gives; a server that fails doesn't tell."""
        for name in model.backends:
            backend = self._backends[name]
            if not isinstance(backend, CountsTokens):
                continue
            try:
                count = await backend.count_tokens(turn.at(name))
            except UpstreamFailed:
                continue
            if count is not None:
                return count
        return None


def _as_run(asked: Asked) -> tuple[ChatRequest, dict[str, msgspec.Raw]]:
    """The request and its body as a model is shown them: without tools that may not be called."""
    if asked.request.tool_choice != "none":
        return asked.request, asked.body
    body = {name: raw for name, raw in asked.body.items() if name not in ("tools", "tool_choice")}
    return msgspec.structs.replace(asked.request, tools=None, tool_choice=None), body
