"""What leaves a sequence: its text, and log-probabilities in step with it.

Without log-probabilities text leaves as soon as the text buffer lets it go. With them a token's
text waits until the token's ``TokenInfo`` is known: a forced token is committed before any forward
pass has told its probability.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .request import TokenInfo
from .textbuffer import TextBuffer


@dataclass(slots=True)
class _Piece:
    position: int
    text: str


class Emission:
    """The outgoing side of one sequence. Positions count from the prompt's first token."""

    def __init__(self, stop: tuple[bytes, ...], *, wants_infos: bool):
        self._buffer = TextBuffer(stop)
        self._wants_infos = wants_infos
        self._pieces: deque[_Piece] = deque()
        self._text: list[str] = []
        self._infos: list[TokenInfo] = []

    @property
    def stopped(self) -> bool:
        """A stop string was completed."""
        return self._buffer.stopped

    @property
    def stopped_by(self) -> str | None:
        """The stop string that was completed, if one was."""
        found = self._buffer.stopped_by
        return None if found is None else found.decode(errors="replace")

    @property
    def waiting_from(self) -> int | None:
        """Position of the first token whose info is not known yet; None when nothing waits."""
        return self._pieces[0].position if self._pieces else None

    def push(self, position: int, piece: bytes, *, literal: bool) -> None:
        """The token at ``position`` was committed; literal: it is constrained output."""
        self._hold(position, self._buffer.feed(piece, literal=literal))

    def push_mark(self, position: int, mark: str) -> None:
        """The token at ``position``, for which a character stands, was committed."""
        self._hold(position, self._buffer.interrupt(mark))

    def _hold(self, position: int, text: str) -> None:
        if self._wants_infos:
            self._pieces.append(_Piece(position, text))
        else:
            self._text.append(text)

    def inform(self, position: int, info: TokenInfo) -> None:
        """The info of a committed token, whose pieces are told in order of position."""
        piece = self._pieces[0]
        assert piece.position == position, "infos must come in order"
        self._pieces.popleft()
        self._text.append(piece.text)
        self._infos.append(info)

    def finish(self) -> None:
        """No token follows: what the text buffer holds goes out behind all that waits."""
        tail = self._buffer.flush()
        if self._pieces:
            self._pieces[-1].text += tail
        else:
            self._text.append(tail)

    def take(self) -> tuple[str, list[TokenInfo]]:
        """The text and infos that may leave now; they are handed out once."""
        text, infos = "".join(self._text), self._infos
        self._text, self._infos = [], []
        return text, infos

    def abandon(self) -> None:
        """The sequence ends without another pass: text goes out although infos are missing."""
        self._text.extend(piece.text for piece in self._pieces)
        self._pieces.clear()
