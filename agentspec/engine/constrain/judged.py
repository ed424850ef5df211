"""A session that always knows a way to a right end, also where no mask can hold the schema.

Legend: K drafted tokens, V vocabulary, W = ceil(V / 32) mask words.

Behind every committed token stands a witness: tokens that complete the text so that the check of
the finished value passes. A token after which no witness is found is not viable: the engine takes
it back, it is banned at its place, and the place is decoded again. So a violation never becomes
final, and never a token that was sent has to be taken back. What a place bans depends on the tokens
before it only, whoever drafted them.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

import numpy as np

from .base import ConstraintUnmet
from .closing import Hints, find_closing, nothing_closes
from .judged_matcher import JudgedMatcher
from .session import REJOIN, GrammarSession
from .vocab import Vocab, clear_bit, has_bit, pack

if TYPE_CHECKING:
    from torch import Tensor

WITNESS_TOKENS = 8192
_MAX_TRIES = 4
"""Tokens banned at one place before it follows the witness."""
_MAX_BLIND_TRIES = 16
"""The same where no witness is known; then the answer is given up."""
_MAX_HOPES = 12
_OPERATIONS = 800
"""Of the matcher, in one search behind a token; a search that fails costs tens of milliseconds."""
_LETTERS = b"aqz"


class JudgedSession(GrammarSession):
    """``Constraint`` over a ``JudgedMatcher``.

    Without a first witness (``prove`` found none) one is looked for again at the first borders;
    until one is found, what is certainly broken or a dead end is not viable, so often at one place.
    """

    __slots__ = (
        "_banned",
        "_examples",
        "_hopes",
        "_judged",
        "_proven_at",
        "_run",
        "_stale",
        "_witness",
    )

    def __init__(
        self, matcher: JudgedMatcher, vocab: Vocab, hints: Hints, *, canonical: bool = True
    ):
        super().__init__(matcher, vocab, hints, canonical=canonical)
        self._judged = matcher
        self._witness: list[int] | None = None
        self._examples: Seq[bytes] = ()
        self._proven_at = 0
        """The number of tokens that ``_witness`` follows."""
        self._run, self._stale = 0, False
        """Tokens inside the open string; whether the witness was taken on trust since its proof."""
        self._banned: dict[int, set[int]] = {}
        self._hopes: tuple[int, int] = (0, 0)
        """How often a witness was looked for where none was known, and the newest border of it."""

    def prove(self, examples: Seq[bytes] = ()) -> bool:
        """Look for a first witness; ``examples``: whole texts, tried before any search."""
        self._examples = examples
        self._witness = self._exemplary()
        if self._witness is None:
            self._witness = find_closing(self.clone(), self._vocab, self._hints, WITNESS_TOKENS)
        return self._witness is not None

    def impossible(self) -> bool:
        """Whether it is sure that no right end exists."""
        return nothing_closes(self.clone(), self._vocab, self._hints, WITNESS_TOKENS)

    def viable(self) -> bool:
        """See ``Constraint.viable``."""
        if self._judged.verdict.broken:
            return False
        if self._witness is None:
            return self._hopeful()
        fresh = self._proven_at == len(self.tokens) - 1
        if fresh and not self._stale and self._witness[:1] == self.tokens[-1:]:
            self._proved(self._witness[1:])
            return True
        run = self._run + 1 if self._judged.verdict.in_free_string else 0
        if self._may_trust(run):
            self._proven_at, self._stale = len(self.tokens), True
        elif not self._rejoins() and not self._searched():
            return False
        self._run = run
        return True

    def ban(self, token: int) -> None:
        banned = self._banned.setdefault(len(self.tokens), set())
        banned.add(token)
        if len(banned) >= _MAX_TRIES and self._stale and not (self._rejoins() or self._searched()):
            self._witness = None
        if self._witness is None and (len(banned) >= _MAX_BLIND_TRIES or not self._untried(banned)):
            raise ConstraintUnmet("no right end was found for the schema")

    def _untried(self, banned: set[int]) -> bool:
        """Whether this place has a token that is not banned."""
        row = np.zeros(self._vocab.words, dtype=np.int32)
        self._fill(row, self._plans[-1])
        for token in banned:
            clear_bit(row, token)
        return bool(row.any())

    def _hopeful(self) -> bool:
        """Whether a text of which no right end is known may go on."""
        count, border = self._hopes
        reached = self._judged.verdict.borders
        if reached > border and count < _MAX_HOPES:
            self._hopes = (count + 1, reached)
            if self._searched():
                return True
        return self.may_stop or not self._matcher.ended()

    @property
    def broken(self) -> bool:
        return self._judged.verdict.broken

    def allows(self, token: int) -> bool:
        banned = self._banned.get(len(self.tokens))
        if banned and (token in banned or self._settled(banned, token)):
            return False
        return super().allows(token)

    def _settled(self, banned: set[int], token: int) -> bool:
        """Whether the place has been tried so often that only the witness may follow."""
        tried = len(banned) >= _MAX_TRIES and self._witness is not None
        tried = tried and token not in self._vocab.eos_ids
        return tried and token not in (self._witness or [])[:1]

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """See ``Constraint.masks``. ``rows``: [K+1, W] int32 on the CPU."""
        legal = super().masks(draft, rows)
        banned = self._banned.get(len(self.tokens))
        if not banned:
            return legal
        row = rows[0].numpy()
        if len(banned) >= _MAX_TRIES and self._witness is not None:
            kept = [t for t in self._witness[:1] if has_bit(row, t)]
            kept += [t for t in self._vocab.eos_ids if has_bit(row, t)]
            row[:] = pack(kept, self._vocab.size)
        for token in banned:
            clear_bit(row, token)
        return legal if draft and has_bit(row, draft[0]) else 0

    def rollback(self, count: int) -> None:
        super().rollback(count)
        if count:
            here = len(self.tokens)
            self._banned = {at: held for at, held in self._banned.items() if at <= here}

    def clone(self) -> JudgedSession:
        twin = JudgedSession.__new__(JudgedSession)
        self._copy_to(twin)
        assert isinstance(twin._matcher, JudgedMatcher)
        twin._judged = twin._matcher
        twin._witness = self._witness  # never changed in place
        twin._proven_at, twin._run, twin._stale = self._proven_at, self._run, self._stale
        twin._examples, twin._hopes = self._examples, self._hopes
        twin._banned = {at: set(held) for at, held in self._banned.items()}
        return twin

    def closing(self, limit: int) -> list[int] | None:
        witness = self._witness
        fresh = self._proven_at == len(self.tokens) and not self._stale
        if witness is not None and fresh and not self.may_stop and len(witness) <= limit:
            return list(witness)
        return super().closing(limit)

    def _dead_end(self, row: np.ndarray) -> None:
        """Write the [W] int32 row of a place that only looking ahead can reach.

        The commit of the token before it is refused (``viable``), so it is never sampled from.
        """
        self._vocab.allow_stop(row)

    def _proved(self, witness: list[int]) -> None:
        self._witness, self._proven_at, self._stale = witness, len(self.tokens), False

    def _may_trust(self, run: int) -> bool:
        """Whether no proof is looked for behind the ``run``-th token of a free string.

        It is at 1, 2, 4, 8.. tokens, and at the string's end, which is a border.
        """
        if not run or run & (run - 1) == 0:
            return False
        return all(self._judged.legal(self._vocab.single.get(b, -1)) for b in _LETTERS)

    def _rejoins(self) -> bool:
        """Whether the known way, or its rest, leads on from here as well."""
        assert self._witness is not None
        for start in range(min(REJOIN, len(self._witness) + 1)):
            tail = self._witness[start:]
            if self._completes(tail):
                self._proved(tail)
                return True
        return False

    def _searched(self) -> bool:
        found = self._exemplary()
        if found is None:
            found = find_closing(
                self.clone(), self._vocab, self._hints, WITNESS_TOKENS, operations=_OPERATIONS
            )
        if found is None:
            return False
        self._proved(found)
        return True

    def _exemplary(self) -> list[int] | None:
        """The rest of an example that the text so far begins."""
        text = b"".join(self._vocab.token_bytes[token] for token in self.tokens)
        for example in self._examples:
            if example.startswith(text):
                tail = self._spelled(example[len(text) :])
                if tail is not None:
                    return tail
        return None

    def _spelled(self, text: bytes) -> list[int] | None:
        """The tokens of the text's rest along forced spans, where it is legal and right."""
        tokens: list[int] = []
        place = 0
        while place < len(text):
            step = self.forced(1 << 16) or [self._vocab.single.get(text[place], -1)]
            piece = b"".join(self._vocab.token_bytes[token] for token in step if token >= 0)
            if not text.startswith(piece, place) or not self.allows(step[0]):
                break
            self.accept(step)
            tokens += step
            place += len(piece)
        right = place == len(text) and self.may_stop
        self.rollback(len(tokens))
        return tokens if right else None
