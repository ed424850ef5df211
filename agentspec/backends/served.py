"""Self-hosted servers of others: SGLang, vLLM, llama.cpp. Each is an OpenAI-compatible URL that is
asked for what it can tell beyond that: acceptance, load, its own window."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from agentspec.settings import BackendSettings
from agentspec.wire.errors import AgentspecError, UpstreamFailed
from agentspec.wire.service import ModelCard

from .base import Turn
from .load import Load, Names, PageReader
from .openai import OpenAIBackend
from .version import version_at

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_LIST = msgspec.json.Decoder(list[dict[str, Any]])
_TRUE = msgspec.Raw(b"true")


class ServedBackend(OpenAIBackend):
    """A server with ``/health`` and, where ``names`` says what stands there, ``/metrics``."""

    names: ClassVar[Names]
    version_path: ClassVar[str] = "/version"
    version_field: ClassVar[str] = "version"

    def __init__(self, name: str, settings: BackendSettings):
        super().__init__(name, settings)
        self._page = PageReader(self.names)

    async def health(self) -> bool:
        try:
            await self._http.get(f"{self._http.origin}/health")
        except AgentspecError:
            return False
        return True

    async def load(self) -> Load | None:
        try:
            page = await self._http.get(f"{self._http.origin}/metrics")
        except UpstreamFailed as error:
            if error.status == 404:  # started without its metrics
                return None
            raise
        return self._page.read(page.decode("utf-8", "replace"))

    async def version(self) -> str | None:
        return await version_at(self._http, self.version_path, self.version_field)


class VLLMBackend(ServedBackend):
    """vLLM. Acceptance comes on the usage chunk of a server started with
    ``--per-request-spec-decode-metrics summary``; cached tokens with
    ``--enable-prompt-tokens-details``."""

    kind = "vllm"
    names = Names(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        used="vllm:kv_cache_usage_perc",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
        drafts="vllm:spec_decode_num_drafts_total",
    )


class SGLangBackend(ServedBackend):
    """SGLang. Acceptance is asked for with each request; cached tokens come from a server started
    with ``--enable-cache-report``. Its page is there with ``--enable-metrics``."""

    kind = "sglang"
    version_path = "/get_server_info"
    names = Names(
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        used="sglang:token_usage",
        length="sglang:spec_accept_length",
    )

    def upstream_body(self, turn: Turn, *, stream: bool) -> dict[str, msgspec.Raw]:
        body = super().upstream_body(turn, stream=stream)
        body["return_spec_tokens_details"] = _TRUE
        return body


class LlamaCppBackend(ServedBackend):
    """llama.cpp's server. Its load is told by ``/slots``, which is there unless switched off; its
    window is that of a slot (``/props``)."""

    kind = "llamacpp"
    version_path, version_field = "/props", "build_info"
    names = Names(running="llamacpp:requests_processing", waiting="llamacpp:requests_deferred")

    async def load(self) -> Load | None:
        try:
            slots = _LIST.decode(await self._http.get(f"{self._http.origin}/slots"))
        except UpstreamFailed as error:
            if error.status in (404, 501):
                return await super().load()
            raise
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None
        return Load(running=float(sum(slot.get("is_processing") is True for slot in slots)))

    async def models(self) -> list[ModelCard]:
        cards = await super().models()
        try:
            props = _OBJECT.decode(await self._http.get(f"{self._http.origin}/props"))
        except (AgentspecError, msgspec.DecodeError, msgspec.ValidationError):
            return cards
        window = (props.get("default_generation_settings") or {}).get("n_ctx")
        for card in cards:
            if isinstance(window, int) and window > 0:
                card.context_length = window
        return cards
