"""What speculation did, counted step by step: widths, waste, times, how right the odds were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .draft.base import FORCED

if TYPE_CHECKING:
    from .acceptance import Bin
    from .slot import Slot

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """Totals since the start. Forced tokens are no drafts.

    widths[n], accepted[n]: times that a sequence verified n drafted tokens, that n of them stood.
    steps, step_s: number and seconds of steps by the sources in them, joined by "+", or "none".
    bins: by tenth of predicted survival: (drafted tokens, sum of predictions, tokens that stood).
    """

    widths: dict[int, int] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    step_s: dict[str, float] = field(default_factory=dict)
    bins: tuple[tuple[int, float, int], ...] = ()

    @property
    def drafted_tokens(self) -> int:
        return sum(width * times for width, times in self.widths.items())

    @property
    def accepted_tokens(self) -> int:
        return sum(count * times for count, times in self.accepted.items())

    @property
    def acceptance_rate(self) -> float | None:
        """Of drafted tokens that were verified; None before the first."""
        drafted = self.drafted_tokens
        return self.accepted_tokens / drafted if drafted else None


class Watch:
    """Counts for one engine."""

    def __init__(self) -> None:
        self._widths: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()
        self._steps: Counter[str] = Counter()
        self._step_s: dict[str, float] = {}

    def saw(self, slots: Iterable[Slot], seconds: float) -> None:
        """A step over the slots took so long; their verdicts are given."""
        sources: set[str] = set()
        for slot in slots:
            if slot.verdict is None:
                continue
            names, standing = slot.proposal.sources, slot.verdict.standing
            drafted, stood = len(names), len(standing)
            if FORCED in names:
                drafted -= names.count(FORCED)
                stood -= sum(names[i] == FORCED for i in standing)
            sources.update(names)
            self._widths[drafted] += 1
            self._accepted[stood] += 1
        sources.discard(FORCED)
        name = "+".join(sorted(sources)) or PLAIN
        self._steps[name] += 1
        self._step_s[name] = self._step_s.get(name, 0.0) + seconds

    def stats(self, bins: Seq[Bin]) -> SpeculationStats:
        return SpeculationStats(
            widths=dict(self._widths),
            accepted=dict(self._accepted),
            steps=dict(self._steps),
            step_s=dict(self._step_s),
            bins=tuple((bin.count, bin.predicted, bin.accepted) for bin in bins),
        )
