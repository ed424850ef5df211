"""opencode and Kilo Code, which share a configuration format: a provider more in the user's file.

Checked with opencode 1.18 and kilocode 7.7. ``{env:NAME}`` is read when a request is made. A model
without ``limit`` is never compacted, or for ever.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from agentspec.connect.base import NO_KEY, Client, ConfigFile, Configuration, Target, words


def configure(
    target: Target, *, client: str, folder: str, file: str, command: str
) -> Configuration:
    limit = {"context": target.context_tokens or 32768, "output": target.output_tokens}
    key = f"{{env:{target.key_env}}}" if target.key_env else NO_KEY
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "agentspec",
        "options": {"baseURL": target.base_url, "apiKey": key},
        "models": {target.model: {"name": target.model, "limit": limit}},
    }
    path = Path(target.config) / folder / file
    return Configuration(
        client=client,
        command=words(command, "--model", f"agentspec/{target.model}"),
        files=(ConfigFile(path, "json", {"provider": {"agentspec": provider}}),),
    )


OPENCODE = Client(
    name="opencode",
    title="opencode",
    surface="chat",
    configure=partial(
        configure, client="opencode", folder="opencode", file="opencode.json", command="opencode"
    ),
)
KILOCODE = Client(
    name="kilocode",
    title="Kilo Code CLI",
    surface="chat",
    configure=partial(
        configure, client="kilocode", folder="kilo", file="kilo.json", command="kilo"
    ),
)
