"""Token masks from a grammar: the small interface over llguidance and outlines-core.

Legend: K drafted tokens, V vocabulary, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Constraint(Protocol):
    """One sequence's live grammar session. EOS is handled outside: ``may_stop``/``must_stop``."""

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """Fill ``rows`` [len(draft)+1, W] int32: row k allows what may follow draft[:k].

        Returns the legal prefix length L of ``draft``; rows beyond L are unspecified and must not
        be sampled from. State is unchanged. Every filled row allows at least one token or a stop.
        The EOS bits of a row are set exactly where the text may end.
        """
        ...

    def needs_mask(self) -> bool:
        """False where every token is allowed now (free text away from a trigger)."""
        ...

    def allows(self, token: int) -> bool:
        """Whether ``token`` may follow now (argmax-first: no mask is built)."""
        ...

    def forced(self, limit: int) -> list[int]:
        """Canonical tokens of the span forced now (law 2), at most ``limit``; state unchanged."""
        ...

    def accept(self, tokens: Seq[int]) -> None:
        """Advance. An illegal token is a bug of the caller: raises ``ConstraintViolated``."""
        ...

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` accepted tokens."""
        ...

    def viable(self) -> bool:
        """After ``accept`` of one token, before its commit: can the text still come out right?

        Where it cannot the caller rolls that token back, bans it, and decodes the place again.
        """
        ...

    def ban(self, token: int) -> None:
        """``token`` is not allowed at this place from now on; forgotten when it is rolled back.

        Raises ``ConstraintUnmet`` where nothing is left to try.
        """
        ...

    def clone(self) -> Constraint: ...

    @property
    def in_grammar(self) -> bool:
        """Whether the position now is inside constrained output (stop strings don't apply)."""
        ...

    @property
    def may_stop(self) -> bool: ...

    @property
    def must_stop(self) -> bool:
        """The text is complete: nothing but the end may follow."""
        ...

    def closing(self, limit: int) -> list[int] | None:
        """A short legal token sequence that completes the text from here, or None within ``limit``.

        The close-out guard emits it when the budget runs out; [] when nothing is open.
        """
        ...


class CompiledConstraint(Protocol):
    """A grammar compiled once, shared by sequences."""

    cold: bool
    compile_us: int

    def session(self) -> Constraint: ...


class ConstraintViolated(RuntimeError):
    """A forbidden token was about to be committed: a bug of the engine, never swallowed."""


class ConstraintUnmet(ConstraintViolated):
    """No right end of the text was found, which the schema is too hard for: an error for whoever
    asked. Raised by ``ban``, and where a text without a right end is to be ended.
    """
