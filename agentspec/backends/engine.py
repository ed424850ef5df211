"""Our own engine: an OpenAI-compatible server that also speaks the ``agentspec`` object."""

from __future__ import annotations

import msgspec

from agentspec.settings import BackendSettings
from agentspec.wire.errors import AgentspecError, InvalidRequest
from agentspec.wire.extension import SpecRequest

from .base import Turn
from .load import Load, Names, PageReader
from .openai import OpenAIBackend
from .version import version_at


class EngineBackend(OpenAIBackend):
    """The engine, on this machine or another one."""

    kind = "engine"
    native_paths = frozenset()
    # Running counts: Messages tells the prompt's tokens first, and a broken stream has its row.
    stream_options = msgspec.Raw(b'{"include_usage":true,"continuous_usage_stats":true}')

    def __init__(self, name: str, settings: BackendSettings):
        super().__init__(name, settings)
        self._page = PageReader(
            Names(
                "agentspec_engine_running",
                "agentspec_engine_waiting",
                used="agentspec_engine_kv_used_ratio",
            )
        )

    def extension(self, turn: Turn) -> SpecRequest | None:
        return turn.extension

    async def health(self) -> bool:
        try:
            await self._http.get(f"{self._http.origin}/health")
        except AgentspecError:
            return False
        return True

    async def load(self) -> Load | None:
        page = await self._http.get(f"{self._http.origin}/metrics")
        return self._page.read(page.decode("utf-8", "replace"))

    async def version(self) -> str | None:
        return await version_at(self._http, "/health", "version")

    async def embed(self, turn: Turn) -> dict[str, msgspec.Raw]:
        raise InvalidRequest(
            f"The model '{turn.request.model}' has no embeddings.",
            param="model",
            code="unsupported_model",
        )
