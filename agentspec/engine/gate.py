"""Which sequences a source is asked for: it is skipped where its drafts don't pay for themselves.

Every ask is booked: the seconds that its drafts are expected to save, less what this sequence added
to the call (what all share is weighed in ``asking.py``). While the mean is above zero the source is
asked in each step. Below, it is asked at growing distances (1, 2, 4, ... steps), up to the one at
which asking in vain costs half a percent of plain decoding: a cheap source stays close to the text,
a dear one backs off further. A sequence begins
where the sequences before it have brought the source: where it doesn't pay for others, it is asked
seldom from the start. Decided from the past alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from .draft_cost import read

PROBING_SHARE = 0.005
_MEMORY = 0.7
_SOURCE_MEMORY = 0.98
FARTHEST = 512
_WORTH_MEMORY = 0.9
_WORTH_PRIOR = 2.0
_WORTH_MOST = 10.0


@dataclass(slots=True)
class Account:
    """Of one sequence and source. profit_s: mean of an ask, None before the first. tokens: mean of
    what is expected of one. shares, shares_of: what drafts promised in multiples of the source's
    usual, and of how many. known: tokens of the text that the source has read, None: none, but
    those of a prefix hit."""

    profit_s: float | None = None
    tokens: float = 0.0
    distance: int = 0
    wait: int = 0
    shares: float = 0.0
    shares_of: float = 0.0
    known: int | None = None

    @property
    def due(self) -> bool:
        """Whether it is time to ask."""
        return self.wait == 0

    @property
    def worth(self) -> float:
        """What drafts promise for the sequence, as a factor of what the source's usually do."""
        return (_WORTH_PRIOR + self.shares) / (_WORTH_PRIOR + self.shares_of)

    @property
    def expected(self) -> float | None:
        """Tokens that its drafts are usually expected to save a step; None: never asked."""
        return None if self.profit_s is None else self.tokens

    def waited(self) -> None:
        """A step in which others may have been asked for is over for it."""
        if self.wait:
            self.wait -= 1

    def promised(self, share: float) -> None:
        """A draft promised so many times what the source's usually do."""
        self.shares = _WORTH_MEMORY * self.shares + min(share, _WORTH_MOST)
        self.shares_of = _WORTH_MEMORY * self.shares_of + 1.0

    def unread(self, cached: int, length: int) -> int:
        """The source is called; what it has to read of the text first, and has read then."""
        tokens, self.known = read(cached if self.known is None else self.known, length)
        return tokens

    def book(self, tokens: float, profit_s: float, memory: float) -> None:
        if self.profit_s is None:
            self.profit_s, self.tokens = profit_s, tokens
        else:
            self.profit_s += (1.0 - memory) * (profit_s - self.profit_s)
            self.tokens += (1.0 - memory) * (tokens - self.tokens)


class Gate:
    """The accounts of all sequences and sources."""

    def __init__(self) -> None:
        self._accounts: dict[str, dict[int, Account]] = defaultdict(dict)
        self._sources: dict[str, Account] = defaultdict(Account)

    def account(self, sequence: int, source: str) -> Account:
        accounts = self._accounts[source]
        found = accounts.get(sequence)
        if found is None:
            found = accounts[sequence] = Account()
            usual = self._sources[source]
            if usual.profit_s is not None and usual.profit_s < 0.0:
                found.distance = usual.distance
                found.wait = sequence % (usual.distance + 1)
        return found

    def booked(
        self,
        sequence: int,
        source: str,
        *,
        tokens: float,
        profit_s: float,
        cost_s: float,
        plain_s: float,
    ) -> None:
        """An ask was worth ``tokens`` and ``profit_s`` seconds, its own ``cost_s`` taken off.

        plain_s: what the sequence's share of a step without drafts costs.
        """
        account, usual = self.account(sequence, source), self._sources[source]
        account.book(tokens, profit_s, _MEMORY)
        usual.book(tokens, profit_s, _SOURCE_MEMORY)
        assert account.profit_s is not None
        farthest = math.ceil(cost_s / (PROBING_SHARE * plain_s)) if plain_s > 0.0 else FARTHEST
        farthest = min(max(farthest - 1, 0), FARTHEST)
        usual.distance = farthest
        if account.profit_s >= 0.0:
            account.distance = account.wait = 0
            return
        account.distance = min(max(1, 2 * account.distance), farthest)
        account.wait = account.distance

    def close(self, sequence: int) -> None:
        for accounts in self._accounts.values():
            accounts.pop(sequence, None)
