"""Random texts of a Lark grammar, byte by byte: what a constraint would let a model write."""

from __future__ import annotations

import random
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

TOKENIZER = LLTokenizer("byte")
_LETTERS = 'ab1 -_.:,;\n\t"\\/<>[]{}()|=é日`'


class Sampler:
    """Draws texts of one grammar. closers: texts that lead out of what is open."""

    def __init__(self, lark: str, closers: Sequence[str]):
        self._start = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(lark), log_level=0)
        assert not self._start.get_error(), f"{self._start.get_error()}\n{lark}"
        self._closers = [text for text in closers if text]

    def accepts(self, text: str) -> bool:
        matcher = self._start.deep_copy()
        return self._push(matcher, text.encode()) and matcher.is_accepting()

    def draw(self, seed: int) -> str:
        """A whole text of the grammar."""
        dice, matcher = random.Random(seed), self._start.deep_copy()
        written = b""
        while not (matcher.is_accepting() and (matcher.is_stopped() or dice.random() < 0.3)):
            piece = self._next(matcher, dice, len(written))
            assert piece and self._push(matcher, piece), (written.decode(errors="replace"), piece)
            written += piece
            assert len(written) < 4000, written.decode(errors="replace")
        return written.decode()

    def _next(self, matcher: LLMatcher, dice: random.Random, size: int) -> bytes:
        """What may follow: a forced span, the way out (sooner or later), or some byte."""
        forced = bytes(matcher.compute_ff_tokens())
        if forced:
            return forced
        if size > 300 or dice.random() < 0.3:
            for text in dice.sample(self._closers, len(self._closers)):
                if self._push(matcher.deep_copy(), text.encode()):
                    return text.encode()
        for letter in dice.sample(_LETTERS, 6):
            if self._push(matcher.deep_copy(), letter.encode()):
                return letter.encode()
        legal = [b for b in (10, *range(32, 127)) if self._push(matcher.deep_copy(), bytes([b]))]
        return bytes([dice.choice(legal)]) if legal else b""

    def _push(self, matcher: LLMatcher, text: bytes) -> bool:
        return matcher.try_consume_tokens(list(text)) == len(text)
