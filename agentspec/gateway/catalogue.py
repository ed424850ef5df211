"""``/v1/models``: what may be asked for, and how long its context is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from agentspec.backends.base import Backend
from agentspec.settings import ModelSettings
from agentspec.wire.errors import AgentspecError, ModelNotFound
from agentspec.wire.service import ModelCard, ModelList

from .clock import Clock
from .identity import Identity, canonical_names

log = logging.getLogger(__name__)

FRESH_S = 60.0


class Catalogue:
    """The configured models. A context length that isn't configured is asked of the backend, and
    remembered for ``FRESH_S``; a backend that doesn't answer leaves it out."""

    def __init__(
        self,
        models: Mapping[str, ModelSettings],
        backends: Mapping[str, Backend],
        clock: Clock,
    ):
        self._models = models
        self._canonical = canonical_names(models)
        self._backends = backends
        self._clock = clock
        self._created_s = int(clock.wall_s())
        self._asked_s: dict[str, float] = {}
        self._contexts: dict[tuple[str, str], int] = {}

    async def list(self, identity: Identity) -> ModelList:
        """Those that the caller may use."""
        unknown = {m.backends[0] for m in self._models.values() if m.context_tokens is None}
        await asyncio.gather(*(self._ask(name) for name in unknown))
        allowed = (name for name in self._models if identity.may_use(name, self._canonical))
        return ModelList(data=[self._card(name) for name in allowed])

    async def get(self, model_id: str, identity: Identity) -> ModelCard:
        """Raises ``ModelNotFound``."""
        model = self._models.get(model_id)
        if model is None:
            raise ModelNotFound(f"The model '{model_id}' does not exist here.", param="model")
        identity.require(model_id, self._canonical)
        if model.context_tokens is None:
            await self._ask(model.backends[0])
        return self._card(model_id)

    def _card(self, name: str) -> ModelCard:
        model = self._models[name]
        backend = model.backends[0]
        upstream = model.upstream_names.get(backend, model.upstream_name or name)
        known = self._contexts.get((backend, upstream))
        return ModelCard(
            id=name,
            created=self._created_s,
            context_length=model.context_tokens or known,
            backend=backend,
        )

    async def _ask(self, backend: str) -> None:
        now_s = self._clock.tick_s()
        if now_s - self._asked_s.get(backend, -FRESH_S) < FRESH_S:
            return
        try:
            cards = await self._backends[backend].models()
        except AgentspecError as error:
            log.info("no model list from backend %s: %s", backend, error.message)
            return
        self._asked_s[backend] = now_s
        for card in cards:
            if card.context_length:
                self._contexts[backend, card.id] = card.context_length
