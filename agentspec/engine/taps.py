"""Which outputs of which layers the target's passes give away, and to whom.

The runner taps every layer that some drafter wants, once, side by side in ascending order; a
drafter is shown its own. Legend: T rows of a pass, N tapped features, E hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from .draft.base import Observed

if TYPE_CHECKING:
    from torch import Tensor

    from .draft.base import Drafter, DraftView, TappedDrafter
    from .slot import Slot


@runtime_checkable
class Tappable(Protocol):
    """A runner whose ``Forward.features`` can be chosen: [T, len(taps) * E]; () gives None."""

    def set_taps(self, taps: Seq[int], /) -> None:
        """Give the outputs of these decoder layers (from 0) from the next pass on.

        Raises ``ValueError`` for a layer that isn't there.
        """
        ...


@runtime_checkable
class Refillable(Protocol):
    """A drafter that can say what it has not seen of a prefix hit."""

    def missing(self, view: DraftView, /) -> int:
        """How many positions at a hit's end the target is to compute once more, so that this
        drafter sees them. Asked after ``open``; a multiple of the page size."""
        ...


class Taps:
    """The taps of all drafters of an engine. drafters: those that have any."""

    def __init__(self, drafters: Seq[Drafter]):
        self.drafters = [cast("TappedDrafter", d) for d in drafters if d.taps]
        self.layers = tuple(sorted({layer for d in self.drafters for layer in d.taps}))

    def ask(self, runner: object) -> None:
        """Have ``runner`` give these taps. Raises ``ValueError``."""
        if isinstance(runner, Tappable):
            runner.set_taps(self.layers)
        elif self.layers:
            names = [drafter.name for drafter in self.drafters]
            raise ValueError(f"drafters {names} need target features, which this runner hasn't")

    def observed(self, drafter: Drafter, slot: Slot, features: Tensor) -> Observed:
        """What ``drafter`` is shown of a slot: its columns of features [T, N], a view if it can."""
        count = slot.sequence.computed - slot.start
        rows = features[slot.first_row : slot.first_row + count]
        if slot.moves():
            rows = features[[slot.first_row + offset for offset in slot.offsets(count)]]
        if drafter.taps != self.layers:
            parts = rows.unflatten(-1, (len(self.layers), -1))
            rows = parts[:, [self.layers.index(tap) for tap in drafter.taps]].flatten(1)
        return Observed(slot.sequence.view, slot.start, rows)
