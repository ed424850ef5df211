"""What constraints need to know of a vocabulary, computed once an engine.

Legend: V vocabulary, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

_CLOSERS = frozenset(b'"}]')


@dataclass(slots=True)
class Vocab:
    """Token bytes and the ids that are not text.

    token_bytes: V byte strings. eos_ids: tokens that end the text. special_ids: tokens without text
    (EOS among them): never legal inside a grammar.
    every: [W] int32, a row that allows all V tokens. no_special: likewise without ``special_ids``.
    single: byte value -> a token of exactly that byte. closers: tokens of only ``"``, ``}``, ``]``,
    longest first.
    """

    token_bytes: Sequence[bytes]
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    size: int
    every: np.ndarray = field(init=False, repr=False)
    no_special: np.ndarray = field(init=False, repr=False)
    single: dict[int, int] = field(init=False, repr=False)
    closers: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert len(self.token_bytes) <= self.size
        self.special_ids = self.special_ids | self.eos_ids
        text = {
            token: piece
            for token, piece in enumerate(self.token_bytes)
            if piece and token not in self.special_ids
        }
        self.every = pack(range(self.size), self.size)
        self.no_special = pack(text, self.size)
        self.single = {piece[0]: token for token, piece in text.items() if len(piece) == 1}
        closers = [token for token, piece in text.items() if _CLOSERS.issuperset(piece)]
        self.closers = sorted(closers, key=lambda token: (-len(text[token]), token))

    def with_marks(self, marks: Collection[int]) -> Vocab:
        """A copy in which these special tokens may be legal inside a grammar."""
        twin = copy(self)
        twin.special_ids = self.special_ids - frozenset(marks)
        twin.no_special = self.no_special | pack(marks, self.size)
        return twin

    @property
    def words(self) -> int:
        return words(self.size)

    def allow_stop(self, row: np.ndarray) -> None:
        """Set the EOS bits of ``row`` [W] int32."""
        for token in self.eos_ids:
            set_bit(row, token)


def words(size: int) -> int:
    """Mask words that ``size`` tokens take."""
    return (size + 31) // 32


def pack(tokens: Collection[int], size: int) -> np.ndarray:
    """[W] int32 row with the bits of ``tokens`` set."""
    bits = np.zeros(words(size) * 32, dtype=np.uint8)
    bits[np.fromiter(tokens, dtype=np.int64, count=len(tokens))] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


def unpack(row: np.ndarray) -> np.ndarray:
    """Ids whose bits are set in ``row`` [W] int32, ascending."""
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


def set_bit(row: np.ndarray, token: int) -> None:
    """Allow ``token`` in ``row`` [W] int32."""
    row.view(np.uint32)[token >> 5] |= np.uint32(1 << (token & 31))


def clear_bit(row: np.ndarray, token: int) -> None:
    """Forbid ``token`` in ``row`` [W] int32."""
    row.view(np.uint32)[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)


def has_bit(row: np.ndarray, token: int) -> bool:
    """Whether ``row`` [W] int32 allows ``token``."""
    return bool(int(row[token >> 5]) >> (token & 31) & 1)
