"""aider: a configuration file of its own, and the model's limits in the form litellm reads.

Checked with 0.86: edits come as text, no tools are sent. By itself it sets an answer no limit:
a small model that repeats itself would go on to the end of its context.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import Client, ConfigFile, Configuration, Target, words

SMALL_CONTEXT_TOKENS = 16384


def configure(target: Target) -> Configuration:
    model = f"openai/{target.model}"
    metadata = target.own / "aider.model.json"
    options = target.own / "aider.model.yml"
    config = target.own / "aider.yml"
    settings: dict[str, Any] = {
        "model": model,
        "openai-api-base": target.base_url,
        "model-metadata-file": str(metadata),
        "model-settings-file": str(options),
    }
    limits: dict[str, Any] = {"litellm_provider": "openai", "mode": "chat"}
    limits |= {"input_cost_per_token": 0, "output_cost_per_token": 0}
    limits |= {"max_output_tokens": target.output_tokens, "max_tokens": target.output_tokens}
    if target.context_tokens:
        limits["max_input_tokens"] = target.context_tokens
        if target.context_tokens < SMALL_CONTEXT_TOKENS:
            settings["map-tokens"] = 0
    return Configuration(
        client="aider",
        command=words("aider", "--config", config),
        files=(
            ConfigFile(config, "yaml", settings, own=True),
            ConfigFile(metadata, "json", {model: limits}, own=True),
            ConfigFile(options, "yaml", [_options(model, target)], own=True),
        ),
        env={"OPENAI_API_KEY": target.key},
    )


def _options(model: str, target: Target) -> dict[str, Any]:
    return {"name": model, "extra_params": {"max_tokens": target.output_tokens}}


CLIENT = Client(
    name="aider", title="aider", surface="chat", configure=configure, tools=False, images=False
)
