"""Prices in memory: which one of a model holds at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from .cost import Price
from .prices import Dated


def names(model: str) -> tuple[str, ...]:
    """Under which names a model may be priced, the best first: in full, then without the
    provider's prefix."""
    short = model.rpartition("/")[2]
    return (model,) if short == model else (model, short)


class PriceBook:
    """Dated prices, sorted as ``prices.dated`` gives them. Answers in a few look-ups."""

    def __init__(self, prices: Iterable[Dated] = ()):
        self._versions: dict[str, list[tuple[int, int, list[Price]]]] = {}
        for one in prices:
            versions = self._versions.setdefault(one.model, [])
            if not versions or versions[-1][1] != one.version_id:
                versions.append((one.valid_from_ms, one.version_id, []))
            versions[-1][2].append(one.price)

    def at(self, model: str, ts_ms: int, in_tok: int) -> tuple[int, Price] | None:
        """(version's id, price) for a request of that time and input; None: unknown. The best name
        that is priced by then counts."""
        for name in names(model):
            versions = self._versions.get(name, ())
            found = bisect_right(versions, ts_ms, key=lambda version: version[0])
            if found:
                _, version_id, tiers = versions[found - 1]
                fitting = [t for t in tiers if t.above_tok == 0 or in_tok > t.above_tok]
                return (version_id, fitting[-1]) if fitting else None
        return None
