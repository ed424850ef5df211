"""What servers say when a request does not fit into their context, read as numbers.

Two things are told in nearly the same words and must be kept apart: the prompt is too long (a
client must shorten its conversation), or prompt and output limit together are (the limit can be
lowered). The words are those of the servers' own sources and of issues about them (vllm#42474).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_N = r"(?P<{}>\d+)"
_PROMPT, _CONTEXT, _TOTAL = (_N.format(name) for name in ("prompt", "context", "total"))
_PATTERNS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # vLLM, of a limit that is too large, and of a total that is.
        rf"maximum context length is {_CONTEXT} tokens.*?request has {_PROMPT} input tokens",
        rf"maximum context length is {_CONTEXT} tokens.*?prompt contains (?:at least )?"
        rf"{_PROMPT} input tokens",
        # OpenAI, of a total, and of a prompt alone (our engine says the same).
        rf"maximum context length is {_CONTEXT} tokens.*?\({_PROMPT} in (?:the|your) "
        r"(?:messages|prompt)",
        rf"maximum context length is {_CONTEXT} tokens.*?messages resulted in (?:at least )?"
        rf"{_PROMPT} tokens",
        # SGLang, the same two.
        rf"maximum context length of {_CONTEXT} tokens.*?{_PROMPT} tokens from the input",
        rf"input \({_PROMPT} tokens\) is longer than the model's context length "
        rf"\({_CONTEXT} tokens\)",
        # llama.cpp.
        rf"request \({_PROMPT} tokens\) exceeds the available context size \({_CONTEXT} tokens\)",
        # Anthropic, the same two.
        rf"prompt is too long: {_PROMPT} tokens > {_CONTEXT} maximum",
        rf"exceed context limit: {_PROMPT} \+ \d+ > {_CONTEXT}",
        # Anyone who tells no prompt alone.
        rf"maximum context length is {_CONTEXT} tokens.*?requested {_TOTAL} tokens",
    )
]
_WITHOUT_NUMBERS = re.compile(
    r"maximum context length|token count exceeds|exceeds the available context size"
    r"|longer than the model's context length|prompt is too long|exceed context limit",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request that does not fit. Counts are tokens, 0 where they were not told.

    prompt: it may be a lower bound. context: prompt and output together.
    """

    prompt: int = 0
    context: int = 0

    @property
    def room(self) -> int:
        """Output tokens that fit behind the prompt; 0 where the prompt itself is too long."""
        return max(self.context - self.prompt, 0) if self.prompt and self.context else 0


def overflow(message: str) -> Overflow | None:
    """What an error message says of a request that does not fit; None where it says nothing."""
    for pattern in _PATTERNS:
        found = pattern.search(message)
        if found:
            told = {name: int(text) for name, text in found.groupdict().items()}
            return Overflow(told.get("prompt", told.get("total", 0)), told["context"])
    return Overflow() if _WITHOUT_NUMBERS.search(message) else None
