"""Fair turns between tenants: who has been served least goes first.

Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", 2401.00588): each
cache scope has a counter of the work done for it. Of those that wait in one class of priority, the
scope with the smallest counter comes next. One that comes back from idleness starts at the least
counter of those that are there, so that it cannot save up turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sequence import Sequence

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 4
"""Work of a prompt token computed here (cached ones are free), and of an output token, which comes
alone in its pass."""


class FairTurns:
    """Counters by scope; those of scopes without a sequence are forgotten."""

    def __init__(self) -> None:
        self._work: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._present: dict[str, int] = defaultdict(int)

    def arrived(self, sequence: Sequence) -> None:
        scope = sequence.request.cache_scope
        if scope not in self._work:
            self._work[scope] = min(self._work.values(), default=0)
            self._read[scope] = min(self._read.values(), default=0)
        self._present[scope] += 1

    def left(self, sequence: Sequence) -> None:
        scope = sequence.request.cache_scope
        self._present[scope] -= 1
        if self._present[scope] == 0:
            del self._present[scope], self._work[scope], self._read[scope]

    def served(self, sequence: Sequence, prompt_tokens: int, output_tokens: int) -> None:
        scope = sequence.request.cache_scope
        if scope in self._work:
            work = PROMPT_WEIGHT * prompt_tokens + OUTPUT_WEIGHT * output_tokens
            self._work[scope] += work

    def read(self, sequence: Sequence, tokens: int) -> None:
        """So many tokens of its prompt are computed in this step."""
        self._read[sequence.request.cache_scope] += tokens

    def was_read(self, sequence: Sequence) -> int:
        """Tokens of prompts that were computed for its scope, as far as they count."""
        return self._read[sequence.request.cache_scope]

    def next(self, waiting: Iterable[Sequence]) -> Sequence:
        """Whose turn it is: the highest priority, then the least served scope, then arrival."""
        return min(waiting, key=self._turn)

    def _turn(self, sequence: Sequence) -> tuple[int, int, int]:
        priority, number = sequence.rank
        return priority, self._work[sequence.request.cache_scope], number
