"""Cline's command line: a provider file of its own, named by a variable. Checked with 3.0.65.

``cline auth`` and ``-k`` would write the key into its file; without one there it is read from
OPENAI_API_KEY.
``maxTokens`` and ``contextWindow`` are in the schema of its settings; given 8,192 it still asked
for 32,000 tokens an answer, so don't count on the former.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import (
    NO_KEY,
    Client,
    ConfigFile,
    Configuration,
    Target,
    Variable,
    words,
)

_PROVIDER = "openai-compatible"


def configure(target: Target) -> Configuration:
    path = target.own / "cline.json"
    settings: dict[str, Any] = {
        "provider": _PROVIDER,
        "model": target.model,
        "baseUrl": target.base_url,
        "maxTokens": target.output_tokens,
    }
    env: dict[str, str | Variable] = {"CLINE_PROVIDER_SETTINGS_PATH": str(path)}
    if target.key_env:
        env["OPENAI_API_KEY"] = Variable(target.key_env)
    else:
        settings["apiKey"] = NO_KEY
    if target.context_tokens:
        settings["contextWindow"] = target.context_tokens
    entry = {
        "settings": settings,
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tokenSource": "manual",
    }
    file = {
        "version": 1,
        "lastUsedProvider": _PROVIDER,
        "modes": {},
        "providers": {_PROVIDER: entry},
    }
    return Configuration(
        client="cline",
        command=words("cline", "-P", _PROVIDER, "-m", target.model),
        files=(ConfigFile(path, "json", file, own=True),),
        env=env,
    )


CLIENT = Client(name="cline", title="Cline CLI", surface="chat", configure=configure)
