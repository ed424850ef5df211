"""A matcher whose text is judged as well: complete only where the checked values are right."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from .judging import Verdict
from .session import Matcher


class JudgedMatcher:
    """``Matcher`` over another one. ``verdict``: of the text so far, worked out when it is asked.

    token_bytes: V byte strings.
    """

    __slots__ = ("_inner", "_token_bytes", "_tokens", "_verdicts")

    def __init__(self, inner: Matcher, start: Verdict, token_bytes: Seq[bytes]):
        self._inner, self._token_bytes = inner, token_bytes
        self._tokens: list[int] = []
        self._verdicts = [start]

    @property
    def verdict(self) -> Verdict:
        known = self._verdicts
        for token in self._tokens[len(known) - 1 :]:
            last = known[-1]
            known.append(last if last.broken else last.fed(self._token_bytes[token]))
        return known[-1]

    def legal(self, token: int) -> bool:
        return self._inner.legal(token)

    def push(self, token: int) -> None:
        self._inner.push(token)
        self._tokens.append(token)

    def pop(self, count: int) -> None:
        self._inner.pop(count)
        if count:
            del self._tokens[-count:]
            del self._verdicts[len(self._tokens) + 1 :]

    def fill(self, row: np.ndarray) -> None:
        """Write the [W] int32 row of the mask alone."""
        self._inner.fill(row)

    def forced(self) -> list[int]:
        return self._inner.forced()

    def accepting(self) -> bool:
        if not self._inner.accepting():
            return False
        verdict = self.verdict
        return verdict.complete and not verdict.broken

    def ended(self) -> bool:
        return self._inner.ended()

    def copy(self) -> JudgedMatcher:
        twin = JudgedMatcher(self._inner.copy(), self._verdicts[0], self._token_bytes)
        twin._tokens, twin._verdicts = list(self._tokens), list(self._verdicts)
        return twin
