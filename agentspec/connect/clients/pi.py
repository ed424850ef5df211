"""pi: a provider more in ``models.json``, whose ``apiKey`` may be a variable's name.

Checked with 0.73 (docs/models.md of the package).
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import NO_KEY, Client, ConfigFile, Configuration, Target, words


def configure(target: Target) -> Configuration:
    model: dict[str, Any] = {
        "id": target.model,
        "name": target.model,
        "reasoning": False,
        "input": ["text"],
        "contextWindow": target.context_tokens or 32768,
        "maxTokens": target.output_tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {
        "baseUrl": target.base_url,
        "api": "openai-completions",
        "apiKey": target.key_env or NO_KEY,
        "models": [model],
    }
    path = target.home / ".pi" / "agent" / "models.json"
    return Configuration(
        client="pi",
        command=words("pi", "--provider", "agentspec", "--model", target.model),
        files=(ConfigFile(path, "json", {"providers": {"agentspec": provider}}),),
    )


CLIENT = Client(name="pi", title="pi", surface="chat", configure=configure)
