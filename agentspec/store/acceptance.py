"""How far drafts carry: the histogram of accepted lengths, summed over requests.

One histogram answers every question about acceptance (``hist[j]``: verification steps that accepted
exactly j drafted tokens): for a chain of drafts, position i was accepted in the steps that accepted
i or more, and a step yields its accepted tokens and one more, the bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from .slices import Slice, counts


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``hist[j]`` counts verification steps that accepted exactly j drafted tokens."""

    hist: tuple[int, ...] = ()

    @property
    def steps(self) -> int:
        return sum(self.hist)

    @property
    def mean_length(self) -> float | None:
        """Tokens per step, the bonus token included; None without a step."""
        accepted = sum(j * count for j, count in enumerate(self.hist))
        return 1 + accepted / self.steps if self.steps else None

    @property
    def by_position(self) -> list[float]:
        """For draft positions 1, 2, ...: the share of steps in which that position was accepted."""
        steps = self.steps
        return [sum(self.hist[i:]) / steps for i in range(1, len(self.hist))] if steps else []


def acceptance(connection: Connection, slice: Slice) -> Acceptance:
    """The histogram over all requests of the slice. Steps pool: long outputs weigh more."""
    found = counts(connection, slice, "accepted")
    return Acceptance(tuple(found.get(j, 0) for j in range(max(found, default=-1) + 1)))
