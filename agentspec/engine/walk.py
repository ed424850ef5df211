"""Looking ahead along a live constraint: accept, ask, and roll everything back.

Legend: V vocabulary, W mask words.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from .sampling import unpack_mask

if TYPE_CHECKING:
    from torch import Tensor

    from .constrain import Constraint


class Walk:
    """A context manager: within it the constraint may stand further on, after it where it stood.

    constraint None allows everything. stop_ids: tokens that end the text; they are never accepted
    into the constraint (``Constraint`` leaves the end of text to its user).
    """

    def __init__(self, constraint: Constraint | None, stop_ids: Collection[int] = ()):
        self._constraint = constraint
        self._stop_ids = stop_ids
        self._moved = 0

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.back(self._moved)

    def advance(self, token: int) -> bool:
        """Go over a legal token. False, without moving, where it ends the text."""
        if token in self._stop_ids:
            return False
        if self._constraint is not None:
            self._constraint.accept((token,))
            self._moved += 1
        return True

    @property
    def moved(self) -> int:
        """How many tokens the constraint stands further on."""
        return self._moved

    def back(self, count: int) -> None:
        """Take back the last ``count`` of the tokens that the constraint went over."""
        if count and self._constraint is not None:
            self._constraint.rollback(count)
            self._moved -= count

    def allows(self, token: int) -> bool:
        """Whether ``token`` may stand here; a token that ends the text included."""
        constraint = self._constraint
        return constraint is None or not constraint.needs_mask() or constraint.allows(token)

    def forced(self, limit: int) -> list[int]:
        """The forced span that starts here, at most ``limit`` tokens."""
        if self._constraint is None or limit <= 0:
            return []
        return self._constraint.forced(limit)

    def allowed(self, vocab: int) -> Tensor | None:
        """What may stand here as [V] bool; None: everything."""
        words = self.words((vocab + 31) // 32)
        return None if words is None else unpack_mask(words, vocab)

    def words(self, count: int) -> Tensor | None:
        """What may stand here as [W = count] int32 mask words; None: everything."""
        constraint = self._constraint
        if constraint is None or not constraint.needs_mask():
            return None
        words = torch.zeros(1, count, dtype=torch.int32)
        constraint.masks((), words)
        return words[0]
