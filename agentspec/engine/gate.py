"""Whether a source is asked at all: drafting is skipped where it does not pay for itself.

Every ask is booked: the seconds that its drafts are expected to save, less those that drafting
took. While the mean is above zero the source is asked in each step. Below, it is asked at growing
distances (1, 2, 4, ... steps), up to the one at which asking in vain costs 1 % of plain decoding:
a cheap source stays close to the text, a dear one backs off further. Decided from the past alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PROBING_SHARE = 0.01
_MEMORY = 0.7
_FARTHEST = 256


@dataclass(slots=True)
class _Account:
    """profit_s: mean of an ask, None before the first. tokens: mean of what is expected of one."""

    profit_s: float | None = None
    tokens: float = 0.0
    distance: int = 0
    wait: int = 0


class Gate:
    """The accounts of all sequences and sources."""

    def __init__(self) -> None:
        self._accounts: dict[int, dict[str, _Account]] = {}

    def asks(self, sequence: int, source: str) -> bool:
        """Whether to ask now. Called once a step for each pair; counts its step as waited."""
        account = self._accounts.get(sequence, {}).get(source)
        if account is None or account.wait == 0:
            return True
        account.wait -= 1
        return False

    def expected(self, sequence: int, source: str) -> float | None:
        """Tokens that its drafts are usually expected to save a step; None: never asked."""
        account = self._accounts.get(sequence, {}).get(source)
        return None if account is None else account.tokens

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
        account = self._accounts.setdefault(sequence, {}).setdefault(source, _Account())
        if account.profit_s is None:
            account.profit_s, account.tokens = profit_s, tokens
        else:
            account.profit_s += (1.0 - _MEMORY) * (profit_s - account.profit_s)
            account.tokens += (1.0 - _MEMORY) * (tokens - account.tokens)
        if account.profit_s >= 0.0:
            account.distance = account.wait = 0
            return
        farthest = math.ceil(cost_s / (PROBING_SHARE * plain_s)) if plain_s > 0.0 else _FARTHEST
        account.distance = min(max(1, 2 * account.distance), max(farthest - 1, 0), _FARTHEST)
        account.wait = account.distance

    def close(self, sequence: int) -> None:
        self._accounts.pop(sequence, None)
