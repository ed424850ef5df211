"""How many tokens a recorded first request takes in the embedded model, in full and shortened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentspec.engine.tokenizer import Tokenizer
from agentspec.settings import DEFAULT_CONTEXT_TOKENS
from agentspec.toolcall.format import load_format
from agentspec.toolcall.prompt import build_turns, tools_saved_chars
from agentspec.toolcall.shorten import budget_chars
from agentspec.wire.chat import decode_request


def measure(request: dict[str, Any], weights: Path) -> dict[str, int | None]:
    """request: a chat request, as the gateway sent it on. answer_tokens: its limit of an answer."""
    tokenizer, fmt = Tokenizer.load(weights), load_format("smollm2")
    asked = decode_request(json.dumps(request).encode())
    found: dict[str, int | None] = {"tools": len(request.get("tools") or [])}
    found["answer_tokens"] = asked.token_limit
    for name, wanted in (("full_tokens", "full"), ("short_tokens", "auto")):
        room = budget_chars(wanted, fmt.tools_budget_chars, DEFAULT_CONTEXT_TOKENS)
        shown = replace(fmt, tools_budget_chars=room)
        found[name] = len(tokenizer.render(build_turns(asked, shown)))
        found["saved_chars"] = tools_saved_chars(asked, shown)
    return found
