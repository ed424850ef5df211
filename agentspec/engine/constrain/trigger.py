"""Free text until a marker, then a grammar: the token-level machine of tool_choice "auto".

Legend: K drafted tokens, V vocabulary, W = ceil(V / 32) mask words.

The machine follows the marker's bytes (Knuth-Morris-Pratt) through the tokens. Free text is not
masked, except that a token which would complete the marker and go on is banned, and inside a
partial match so are special tokens: the grammar then starts at a clean token border, and the
machine and a parser of the text agree on where the marker is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

import numpy as np

from .base import Constraint, ConstraintViolated
from .vocab import Vocab, has_bit, pack

if TYPE_CHECKING:
    from torch import Tensor


class Marker:
    """The marker's automaton over tokens; states 0..len-1 are matched bytes, ``DONE`` is the whole.

    marks: spellings of special tokens -> id; such a part of the marker is that token, not its
    letters, and counts as one byte. rows: for each state the [W] int32 row of what may follow,
    EOS included.
    """

    DONE = -1
    BANNED = -2

    def __init__(self, text: str, vocab: Vocab, marks: Mapping[str, int] | None = None):
        assert text
        self.marker = marker = _symbols(text, marks or {})
        self.vocab = vocab
        self._special = {~symbol for symbol in marker if symbol < 0}
        self._fail = _failure(marker)
        enders = [
            token
            for token, piece in enumerate(vocab.token_bytes)
            if marker[-1] >= 0 and marker[-1] in piece and token not in vocab.special_ids
        ]
        self.rows: list[np.ndarray] = []
        self.open: list[bool] = []
        """open[s]: every token is allowed in state s."""
        for state in range(len(marker)):
            banned = {t for t in enders if self.step(state, t) == self.BANNED}
            if state:
                others = vocab.special_ids - vocab.eos_ids
                banned |= {t for t in others if self.step(state, t) == self.BANNED}
            row = vocab.every & ~pack(banned, vocab.size)
            self.rows.append(row)
            self.open.append(not banned)

    def step(self, state: int, token: int) -> int:
        """The state after ``token``; ``DONE``; ``BANNED`` where it straddles the marker's end."""
        if token in self._special:
            symbols: Seq[int] = (~token,)
        elif token in self.vocab.special_ids:
            return self.BANNED if state else 0
        else:
            symbols = self.vocab.token_bytes[token] if token < len(self.vocab.token_bytes) else b""
        for i, symbol in enumerate(symbols):
            while state and self.marker[state] != symbol:
                state = self._fail[state]
            state += self.marker[state] == symbol
            if state == len(self.marker):
                return self.DONE if i == len(symbols) - 1 else self.BANNED
        return state


def _symbols(text: str, marks: Mapping[str, int]) -> list[int]:
    """A marker's bytes, and for what is a special token its id, inverted."""
    longest_first = sorted(marks, key=len, reverse=True)
    split = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text) if marks else [text]
    return [s for p in split for s in ([~marks[p]] if p in marks else p.encode())]


def _failure(marker: Seq[int]) -> list[int]:
    """fail[s]: length of the longest proper border of marker[:s]."""
    fail, length = [0, 0], 0
    for i in range(1, len(marker)):
        while length and marker[i] != marker[length]:
            length = fail[length]
        length += marker[i] == marker[length]
        fail.append(length)
    return fail


class TriggerSession:
    """``Constraint`` of a text that is free until the marker and under a grammar after it."""

    __slots__ = ("_marker", "_start", "_states", "_inner", "_inner_count")

    def __init__(self, marker: Marker, start: Callable[[], Constraint]):
        self._marker = marker
        self._start = start
        self._states = [0]
        self._inner: Constraint | None = None
        self._inner_count = 0

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """See ``Constraint.masks``. ``rows``: [K+1, W] int32 on the CPU; a draft may trigger."""
        if self._inner is not None:
            return self._inner.masks(draft, rows)
        view, state = rows.numpy(), self._states[-1]
        for k in range(len(draft) + 1):
            view[k] = self._marker.rows[state]
            if k == len(draft) or not has_bit(view[k], draft[k]):
                return k
            if draft[k] in self._marker.vocab.eos_ids:
                return k
            state = self._marker.step(state, draft[k])
            if state == Marker.DONE:
                return k + 1 + self._start().masks(draft[k + 1 :], rows[k + 1 :])
        raise AssertionError

    def needs_mask(self) -> bool:
        return self._inner is not None or not self._marker.open[self._states[-1]]

    def allows(self, token: int) -> bool:
        if self._inner is not None:
            return self._inner.allows(token)
        return 0 <= token < self._marker.vocab.size and has_bit(
            self._marker.rows[self._states[-1]], token
        )

    def forced(self, limit: int) -> list[int]:
        return [] if self._inner is None else self._inner.forced(limit)

    def accept(self, tokens: Seq[int]) -> None:
        for i, token in enumerate(tokens):
            if self._inner is not None:
                self._inner.accept(tokens[i:])
                self._inner_count += len(tokens) - i
                return
            if token in self._marker.vocab.eos_ids or not self.allows(token):
                raise ConstraintViolated(f"token {token} straddles the marker or ends the text")
            state = self._marker.step(self._states[-1], token)
            self._states.append(state)
            if state == Marker.DONE:
                self._inner, self._inner_count = self._start(), 0

    def rollback(self, count: int) -> None:
        assert 0 <= count < len(self._states) + self._inner_count
        if self._inner is not None:
            inside = min(count, self._inner_count)
            self._inner.rollback(inside)
            self._inner_count -= inside
            count -= inside
            if count:
                self._inner = None
        if count:
            del self._states[-count:]

    def viable(self) -> bool:
        return self._inner is None or not self._inner_count or self._inner.viable()

    def ban(self, token: int) -> None:
        assert self._inner is not None
        self._inner.ban(token)

    def clone(self) -> TriggerSession:
        twin = TriggerSession(self._marker, self._start)
        twin._states = list(self._states)
        twin._inner = None if self._inner is None else self._inner.clone()
        twin._inner_count = self._inner_count
        return twin

    @property
    def in_grammar(self) -> bool:
        return self._inner is not None

    @property
    def may_stop(self) -> bool:
        return self._inner is None or self._inner.may_stop

    @property
    def must_stop(self) -> bool:
        return self._inner is not None and self._inner.must_stop

    def closing(self, limit: int) -> list[int] | None:
        return [] if self._inner is None else self._inner.closing(limit)
