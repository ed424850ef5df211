"""A live grammar session over any matcher: canonical forced spans, EOS, history.

Legend: K drafted tokens, V vocabulary, W = ceil(V / 32) mask words.

Law 2 (canonical constraint): where the text is forced, its canonical tokens are part of the
constraint. A position inside a forced span therefore allows exactly one token, in ``masks``,
``allows`` and ``accept`` alike, so that plain and speculative decoding walk the same tokens. The
plan of a position depends on its token history only: the rest of the plan before it, else the
matcher's forced tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .base import ConstraintViolated
from .closing import Hints, find_closing
from .vocab import Vocab, has_bit, set_bit

if TYPE_CHECKING:
    from torch import Tensor


REJOIN = 4
"""Of a known way to the end, so many tokens are skipped to find back to it."""


class Matcher(Protocol):
    """The little that a grammar engine must offer. Knows nothing of EOS."""

    def legal(self, token: int) -> bool: ...

    def push(self, token: int) -> None:
        """Advance; raises ``ConstraintViolated`` for an illegal token."""
        ...

    def pop(self, count: int) -> None: ...

    def fill(self, row: np.ndarray) -> None:
        """Write the [W] int32 row of legal tokens; EOS and special bits are unspecified."""
        ...

    def forced(self) -> list[int]:
        """Canonical tokens of the forced span; state unchanged."""
        ...

    def accepting(self) -> bool:
        """Whether the text is complete."""
        ...

    def ended(self) -> bool:
        """Whether no further byte is possible."""
        ...

    def copy(self) -> Matcher: ...


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a backend made of a spec.

    matcher: at the start. unchecked: schema paths of keywords that it does not hold. loose: an
    object has keys that are not listed, so that one may come twice.
    """

    matcher: Matcher
    unchecked: list[str]
    loose: bool = False


class GrammarSession:
    """``Constraint`` for a text that is under a grammar from here to its end."""

    __slots__ = (
        *("_matcher", "_vocab", "_canonical", "_hints", "_plans", "tokens"),
        *("_first_closing", "_last_closing"),
    )

    def __init__(self, matcher: Matcher, vocab: Vocab, hints: Hints, *, canonical: bool = True):
        self._matcher = matcher
        self._vocab = vocab
        self._hints = hints
        self._canonical = canonical
        self._plans: list[tuple[int, ...]] = [self._fresh_plan()]
        self.tokens: list[int] = []
        """Accepted since the grammar's start; read only."""
        self._first_closing: list[list[int]] = []
        """The one from the grammar's start, once it is known; shared with all clones."""
        self._last_closing: tuple[int, list[int]] | None = None
        """How many tokens the newest that was found comes after, and it."""

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """See ``Constraint.masks``. ``rows``: [K+1, W] int32 on the CPU."""
        view = rows.numpy()
        plan, pushed = self._plans[-1], 0
        try:
            for k in range(len(draft) + 1):
                self._fill(view[k], plan)
                if k == len(draft):
                    break
                token = draft[k]
                if token in self._vocab.special_ids or not has_bit(view[k], token):
                    break
                self._matcher.push(token)
                pushed += 1
                plan = self._plan_after(plan, token)
        finally:
            self._matcher.pop(pushed)
        return pushed

    def needs_mask(self) -> bool:
        return True

    def allows(self, token: int) -> bool:
        if token in self._vocab.eos_ids:
            return self.may_stop
        plan = self._plans[-1]
        if plan:
            return token == plan[0]
        known = 0 <= token < self._vocab.size and token not in self._vocab.special_ids
        return known and self._matcher.legal(token)

    def forced(self, limit: int) -> list[int]:
        return list(self._plans[-1][:limit])

    def accept(self, tokens: Seq[int]) -> None:
        for token in tokens:
            plan = self._plans[-1]
            if token in self._vocab.special_ids or (plan and token != plan[0]):
                raise ConstraintViolated(f"token {token} is not legal here (plan {plan[:4]})")
            self._matcher.push(token)
            self._plans.append(self._plan_after(plan, token))
            self.tokens.append(token)

    def rollback(self, count: int) -> None:
        assert 0 <= count < len(self._plans)
        if count:
            self._matcher.pop(count)
            del self._plans[-count:], self.tokens[-count:]

    def clone(self) -> GrammarSession:
        twin = GrammarSession.__new__(GrammarSession)
        self._copy_to(twin)
        return twin

    def _copy_to(self, twin: GrammarSession) -> None:
        twin._matcher = self._matcher.copy()
        twin._vocab, twin._hints, twin._canonical = self._vocab, self._hints, self._canonical
        twin._plans, twin.tokens = list(self._plans), list(self.tokens)
        twin._first_closing, twin._last_closing = self._first_closing, self._last_closing

    def viable(self) -> bool:
        """True: grammars have no dead ends."""
        return True

    def ban(self, token: int) -> None:
        raise AssertionError(f"token {token} is viable: every legal token is")

    @property
    def broken(self) -> bool:
        """Whether a value in the text is wrong for good."""
        return False

    @property
    def in_grammar(self) -> bool:
        return True

    @property
    def may_stop(self) -> bool:
        return self._matcher.accepting()

    @property
    def must_stop(self) -> bool:
        return self._matcher.accepting() and self._matcher.ended()

    def closing(self, limit: int) -> list[int] | None:
        if self.may_stop:
            return []
        found = self._known_closing(limit)
        if found is None:
            found = find_closing(self.clone(), self._vocab, self._hints, limit)
            if found is not None and not self.tokens:
                self._first_closing[:] = [found]
        self._last_closing = None if found is None else (len(self.tokens), found)
        return found

    def _known_closing(self, limit: int) -> list[int] | None:
        """The first one, or the newest or its rest, where that leads on from here."""
        if not self.tokens and self._first_closing and len(self._first_closing[0]) <= limit:
            return list(self._first_closing[0])
        at, way = self._last_closing or (0, [])
        if at > len(self.tokens):  # what it came after was taken back
            return None
        tails = (way[start:] for start in range(min(REJOIN, len(way))))
        fits = (tail for tail in tails if len(tail) <= limit)
        return next((tail for tail in fits if self._completes(tail)), None)

    def _completes(self, tokens: list[int]) -> bool:
        """Whether ``tokens`` lead from here to a right end."""
        done = 0
        for token in tokens:
            if not GrammarSession.allows(self, token):
                break
            self.accept((token,))
            done += 1
        right = done == len(tokens) and self.may_stop
        GrammarSession.rollback(self, done)
        return right

    def _fresh_plan(self) -> tuple[int, ...]:
        return tuple(self._matcher.forced()) if self._canonical else ()

    def _plan_after(self, plan: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The plan of the position the matcher has just reached by ``token``."""
        if len(plan) > 1 and plan[0] == token:
            return plan[1:]
        return self._fresh_plan()

    def _fill(self, row: np.ndarray, plan: tuple[int, ...]) -> None:
        """One [W] int32 row for this position; a dead end raises ``ConstraintViolated``."""
        accepting = self._matcher.accepting()
        if plan:
            row.fill(0)
            set_bit(row, plan[0])
        elif accepting and self._matcher.ended():
            row.fill(0)
        else:
            self._matcher.fill(row)
            row &= self._vocab.no_special
        if accepting:
            self._vocab.allow_stop(row)
        elif not row.any():
            self._dead_end(row)

    def _dead_end(self, row: np.ndarray) -> None:
        """Nothing may follow in this [W] int32 row, and the text is not complete."""
        raise ConstraintViolated("the grammar allows no token here: a dead end")
