"""The clients that can be connected, by name."""

from __future__ import annotations

from .base import Client
from .clients import (
    aider,
    claude_code,
    cline,
    codex,
    continue_,
    llm,
    mini_swe_agent,
    opencode,
    pi,
    qwen_code,
    sdks,
)

CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        codex.CLIENT,
        claude_code.CLIENT,
        opencode.OPENCODE,
        qwen_code.CLIENT,
        cline.CLIENT,
        aider.CLIENT,
        continue_.CLIENT,
        opencode.KILOCODE,
        pi.CLIENT,
        mini_swe_agent.CLIENT,
        llm.CLIENT,
        sdks.OPENAI,
        sdks.ANTHROPIC,
    )
}
