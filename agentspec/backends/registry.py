"""The configured backends. Only what is configured is imported."""

from __future__ import annotations

from agentspec.settings import BackendSettings, Settings

from .base import Backend


def build(settings: Settings) -> dict[str, Backend]:
    """One backend for each entry of ``settings.backends`` (after ``with_defaults``), by name.

    Raises ``SettingsError`` where a key's environment variable is not set.
    """
    return {name: _build_one(name, settings) for name in settings.backends}


def _build_one(name: str, settings: Settings) -> Backend:
    chosen = settings.backends[name]
    if chosen.kind == "engine":
        from .engine import EngineBackend

        return EngineBackend(name, chosen)
    if chosen.kind in ("openai", "sglang", "vllm", "llamacpp"):
        return _openai_compatible(name, chosen)
    if chosen.kind == "anthropic":
        from .anthropic import AnthropicBackend

        return AnthropicBackend(name, chosen)
    from .litellm import LiteLLMBackend

    return LiteLLMBackend(name, chosen)


def _openai_compatible(name: str, chosen: BackendSettings) -> Backend:
    if chosen.kind == "openai":
        from .openai import OpenAIBackend

        return OpenAIBackend(name, chosen)
    from .served import LlamaCppBackend, SGLangBackend, VLLMBackend

    kinds = {"sglang": SGLangBackend, "vllm": VLLMBackend, "llamacpp": LlamaCppBackend}
    return kinds[chosen.kind](name, chosen)
