"""How fast each sequence decodes, as its user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sequence import Sequence


class Paces:
    """By sequence: when it began to decode, and how many tokens it had then."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[float, int]] = {}
        self._now_s = 0.0

    def saw(self, sequence: Sequence, now_s: float) -> bool:
        """A step with it is over. Returns whether it was its first one."""
        self._now_s = now_s
        if sequence.number in self._began:
            return False
        self._began[sequence.number] = now_s, sequence.output_tokens
        return True

    def token_s(self, sequence: Sequence) -> float | None:
        """Seconds a token that it has seen since its first."""
        began_s, tokens = self._began.get(sequence.number, (0.0, sequence.output_tokens))
        if sequence.output_tokens <= tokens:
            return None
        return (self._now_s - began_s) / (sequence.output_tokens - tokens)

    def close(self, number: int) -> None:
        self._began.pop(number, None)
