"""OpenAI Codex CLI: a profile of its own beside ``config.toml``, so no setting of the user changes.

Checked with 0.171: ``--profile NAME`` lays ``$CODEX_HOME/NAME.config.toml`` over the user's file,
custom providers speak Responses only, and the model's name decides the tools that are offered.
"""

from __future__ import annotations

import re
from typing import Any

from agentspec.connect.base import Client, ConfigFile, Configuration, Target
from agentspec.resources import user_dir

_OPENAIS = re.compile(r"(.*/)?(gpt-\d|codex|o\d)", re.IGNORECASE)


def plain_tools(model: str) -> bool:
    """Whether Codex offers plain function tools to a model of this name.

    ``gpt-5.5`` gets a free-form apply_patch, ``gpt-5.6`` and ``gpt-6`` one JavaScript tool: made
    for models that were trained on them.
    """
    return not _OPENAIS.match(model)


def configure(target: Target) -> Configuration:
    provider: dict[str, Any] = {
        "name": "agentspec",
        "base_url": target.base_url,
        "wire_api": "responses",
    }
    if target.key_env:
        provider["env_key"] = target.key_env
    settings: dict[str, Any] = {"model": target.model, "model_provider": "agentspec"}
    if target.context_tokens:
        settings["model_context_window"] = target.context_tokens
    settings["model_providers"] = {"agentspec": provider}
    folder = user_dir("CODEX_HOME", ".codex", target.home)
    return Configuration(
        client="codex",
        command="codex --profile agentspec",
        files=(ConfigFile(folder / "agentspec.config.toml", "toml", settings, own=True),),
    )


CLIENT = Client(
    name="codex",
    title="Codex CLI",
    surface="responses",
    configure=configure,
    prefers=plain_tools,
    why_not="Codex offers models of this name other tools than plain functions; give the model "
    "another name under models.NAME.aliases",
)
