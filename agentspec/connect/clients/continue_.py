"""Continue's command line (``cn``): a configuration of its own. Checked with 1.5.47.

``${{ secrets.NAME }}`` is looked up in the environment.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import NO_KEY, Client, ConfigFile, Configuration, Target, words


def configure(target: Target) -> Configuration:
    options = {"maxTokens": target.output_tokens}
    if target.context_tokens:
        options["contextLength"] = target.context_tokens
    model: dict[str, Any] = {
        "name": target.model,
        "provider": "openai",
        "model": target.model,
        "apiBase": target.base_url,
        "apiKey": f"${{{{ secrets.{target.key_env} }}}}" if target.key_env else NO_KEY,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],
        "defaultCompletionOptions": options,
    }
    path = target.own / "continue.yaml"
    settings = {"name": "agentspec", "version": "1.0.0", "schema": "v1", "models": [model]}
    return Configuration(
        client="continue",
        command=words("cn", "--config", path),
        files=(ConfigFile(path, "yaml", settings, own=True),),
    )


CLIENT = Client(name="continue", title="Continue CLI", surface="chat", configure=configure)
