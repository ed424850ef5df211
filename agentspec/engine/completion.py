"""Text completions: a prompt without a chat template, and filling in the middle.

The three tokens of "fill in the middle" are spelled differently by the families that have them:
Qwen2.5-Coder and Qwen3-Coder; StarCoder and its descendants (their model cards).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Protocol

from agentspec.wire.errors import InvalidRequest

_SPELLINGS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
)


class Encoder(Protocol):
    """What is asked of ``tokenizer.Tokenizer``."""

    def encode(self, text: str, special: bool = False) -> list[int]: ...


def completion_prompt(tokenizer: Encoder, text: str, suffix: str | None) -> list[int]:
    """Ids of a prompt to be continued, or to be filled up to ``suffix``.

    Raises ``InvalidRequest`` for an empty prompt, and where a suffix is given and the model has no
    tokens for it.
    """
    if suffix is None:
        prompt = tokenizer.encode(text)
        if not prompt:
            raise InvalidRequest("Invalid 'prompt': it is empty.", param="prompt")
        return prompt
    marks = _marks(tokenizer)
    if marks is None:
        raise InvalidRequest(
            "This model cannot fill in the middle: it has no tokens for a 'suffix'.",
            param="suffix",
            code="unsupported_parameter",
        )
    before, after, middle = marks
    return [before, *tokenizer.encode(text), after, *tokenizer.encode(suffix), middle]


def _marks(tokenizer: Encoder) -> Seq[int] | None:
    for spelling in _SPELLINGS:
        ids = [tokenizer.encode(mark, special=True) for mark in spelling]
        if all(len(one) == 1 for one in ids):
            return [one[0] for one in ids]
    return None
