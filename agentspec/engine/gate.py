"""Whether a source is asked at all: drafting is skipped where it does not pay for itself.

Every ask is booked: the seconds that its drafts are expected to save, less those that drafting
took. While the mean is above zero the source is asked in each step. Below, it is asked at growing
distances (1, 2, 4, ... steps), up to the one at which asking in vain costs half a percent of plain
decoding: a cheap source stays close to the text, a dear one backs off further. A sequence begins
where the sequences before it have brought the source: where it doesn't pay for others, it is asked
seldom from the start. Decided from the past alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PROBING_SHARE = 0.005
_MEMORY = 0.7
_SOURCE_MEMORY = 0.98
_FARTHEST = 512


@dataclass(slots=True)
class _Account:
    """profit_s: mean of an ask, None before the first. tokens: mean of what is expected of one."""

    profit_s: float | None = None
    tokens: float = 0.0
    distance: int = 0
    wait: int = 0

    def book(self, tokens: float, profit_s: float, memory: float) -> None:
        if self.profit_s is None:
            self.profit_s, self.tokens = profit_s, tokens
        else:
            self.profit_s += (1.0 - memory) * (profit_s - self.profit_s)
            self.tokens += (1.0 - memory) * (tokens - self.tokens)


class Gate:
    """The accounts of all sequences and sources."""

    def __init__(self) -> None:
        self._accounts: dict[int, dict[str, _Account]] = {}
        self._sources: dict[str, _Account] = {}

    def _account(self, sequence: int, source: str) -> _Account:
        accounts = self._accounts.setdefault(sequence, {})
        if source not in accounts:
            usual = self._sources.setdefault(source, _Account())
            accounts[source] = _Account()
            if usual.profit_s is not None and usual.profit_s < 0.0:
                accounts[source].distance = usual.distance
                accounts[source].wait = sequence % (usual.distance + 1)
        return accounts[source]

    def asks(self, sequence: int, source: str) -> bool:
        """Whether to ask now. Called once a step for each pair; counts its step as waited."""
        account = self._account(sequence, source)
        if account.wait == 0:
            return True
        account.wait -= 1
        return False

    def expected(self, sequence: int, source: str) -> float | None:
        """Tokens that its drafts are usually expected to save a step; None: never asked."""
        account = self._account(sequence, source)
        return None if account.profit_s is None else account.tokens

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
        account, usual = self._account(sequence, source), self._sources[source]
        account.book(tokens, profit_s, _MEMORY)
        usual.book(tokens, profit_s, _SOURCE_MEMORY)
        assert account.profit_s is not None
        farthest = math.ceil(cost_s / (PROBING_SHARE * plain_s)) if plain_s > 0.0 else _FARTHEST
        farthest = min(max(farthest - 1, 0), _FARTHEST)
        usual.distance = farthest
        if account.profit_s >= 0.0:
            account.distance = account.wait = 0
            return
        account.distance = min(max(1, 2 * account.distance), farthest)
        account.wait = account.distance

    def close(self, sequence: int) -> None:
        self._accounts.pop(sequence, None)
