"""Claude Code: a settings file of its own, given by ``--settings``.

Checked with 2.1.332: ``env`` of a settings file is set before the first request, ``apiKeyHelper``
is a command whose output is the key. Its attribution line changes with each conversation and costs
the shared prefix; the gateway strips it as well.
"""

from __future__ import annotations

from typing import Any

from agentspec.connect.base import NO_KEY, Client, ConfigFile, Configuration, Target, words

_SLOTS = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)


def configure(target: Target) -> Configuration:
    env = {"ANTHROPIC_BASE_URL": target.url} | dict.fromkeys(_SLOTS, target.model)
    env["CLAUDE_CODE_ATTRIBUTION_HEADER"] = "0"
    env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.output_tokens)
    if target.context_tokens:
        env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.context_tokens)
    settings: dict[str, Any] = {"env": env}
    if target.key_env:
        settings["apiKeyHelper"] = f"printenv {target.key_env}"
    else:
        env["ANTHROPIC_AUTH_TOKEN"] = NO_KEY
    path = target.own / "claude-code.json"
    return Configuration(
        client="claude-code",
        command=words("claude", "--settings", path),
        files=(ConfigFile(path, "json", settings, own=True),),
    )


CLIENT = Client(name="claude-code", title="Claude Code", surface="messages", configure=configure)
