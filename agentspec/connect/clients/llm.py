"""llm: an entry more in the list of OpenAI-compatible models. Checked with 0.36.

Where an entry names a key that its own store lacks, it falls back to OPENAI_API_KEY.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import Client, ConfigFile, Configuration, Target, Variable, words
from agentspec.resources import user_dir


def configure(target: Target) -> Configuration:
    name = f"agentspec/{target.model}"
    entry: dict[str, Any] = {
        "model_id": name,
        "model_name": target.model,
        "api_base": target.base_url,
        "supports_tools": True,
        "supports_schema": True,
    }
    env: dict[str, str | Variable] = {}
    if target.key_env:
        entry["api_key_name"] = "agentspec"
        env["OPENAI_API_KEY"] = Variable(target.key_env)
    folder = user_dir("LLM_USER_PATH", target.config / "io.datasette.llm", target.home)
    path = folder / "extra-openai-models.yaml"
    return Configuration(
        client="llm",
        command=words("llm", "-m", name),
        files=(ConfigFile(path, "yaml", [entry], list_key="model_id"),),
        env=env,
    )


CLIENT = Client(name="llm", title="llm", surface="chat", configure=configure, tools=False)
