"""Qwen Code: a model more in ``settings.json``, and the environment.

Checked with 0.24: a model under ``modelProviders`` brings its own URL, key variable and context
window; without the latter an unknown model is taken for one of 131,072 tokens or more.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import Client, ConfigFile, Configuration, Target, words


def configure(target: Target) -> Configuration:
    model: dict[str, Any] = {
        "id": target.model,
        "name": f"{target.model} (agentspec)",
        "baseUrl": target.base_url,
        "envKey": "OPENAI_API_KEY",
    }
    if target.context_tokens:
        model["generationConfig"] = {"contextWindowSize": target.context_tokens}
    settings = {"modelProviders": {"openai": [model]}}
    path = target.home / ".qwen" / "settings.json"
    return Configuration(
        client="qwen-code",
        command=words("qwen", "--auth-type", "openai", "--model", target.model),
        files=(ConfigFile(path, "json", settings, list_key="id"),),
        env={"OPENAI_API_KEY": target.key},
    )


CLIENT = Client(name="qwen-code", title="Qwen Code", surface="chat", configure=configure)
