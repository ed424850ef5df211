"""The close-out guard: open JSON is shut before the token limit tears it.

The guard looks at committed tokens only, one after the other, so that it acts at the same token
with and without speculation. Within a window before the limit it computes for every token the
shortest closing; a token after which nothing closes in time is taken back, and the closing that
was still possible before it is committed in its place. Before the window it looks whenever the
remaining budget has halved (a small one at its start, too), and widens the window where the closing
is long. Where none is found it looks less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .constrain import Constraint

WINDOW_TOKENS = 48
SMALL_TOKENS = 1024
"""A budget of which the shortest text may take more than half."""


class CloseOut:
    """The guard of one sequence with at most ``max_tokens`` output tokens."""

    def __init__(self, max_tokens: int):
        small = max_tokens <= SMALL_TOKENS
        self._check_at = max_tokens if small else max_tokens // 2
        self._closing: list[int] | None = None

    def check(
        self, constraint: Constraint, remaining: int, token: int | None = None
    ) -> list[int] | None:
        """Call after each accepted ``token`` (and once before the first), not yet committed.

        remaining: output tokens left after it. None: go on. A list: the token must be rolled back
        and these tokens, which close the text, be committed in its place; it is empty where nothing
        was open. A text that could not be closed before that token either goes on.
        """
        if remaining > self._check_at:
            self._closing = None
            return None
        before = self._closing
        if before and before[0] == token:
            self._closing = before[1:]  # a search takes milliseconds; forced tokens need none
            return None
        # With room to spare the first way that is found will do; a search that must prove that
        # nothing fits is the costly one.
        closing = constraint.closing(remaining + WINDOW_TOKENS)
        if closing is not None:
            self._check_at = max(WINDOW_TOKENS, 2 * len(closing), remaining // 2)
        elif before is None:
            self._check_at = remaining * 3 // 4  # a search that fails is a long one
        fits = closing is not None and len(closing) <= remaining
        self._closing = closing if fits else None
        return None if fits else before
