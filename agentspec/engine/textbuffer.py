"""Committed token bytes to text: whole characters only, stop strings found across token borders.

The bytes of one sequence pass through two holds, in this order::

    token bytes -> [held: could begin a stop string] -> [incomplete UTF-8 character] -> text

Whatever the tokens' borders, the text in all is the same as that of the joined bytes.
"""

from __future__ import annotations

import codecs

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class TextBuffer:
    """The text of one sequence. ``stop``: byte strings that end it and do not belong to it.

    stopped_by: the stop string that was found; nothing that is fed afterwards gives text.
    """

    def __init__(self, stop: tuple[bytes, ...] = ()):
        self._stop = tuple(string for string in stop if string)
        self._longest = max(map(len, self._stop), default=0)
        self._held = b""
        self._decoder = _utf8_decoder(errors="replace")
        self.stopped_by: bytes | None = None

    @property
    def stopped(self) -> bool:
        return self.stopped_by is not None

    def feed(self, piece: bytes, *, literal: bool = False) -> str:
        """Take a token's bytes; return the text that is certain now.

        literal: these bytes are constrained output, in which stop strings mean nothing; a match
        neither begins before nor ends behind them. Invalid bytes become U+FFFD.
        """
        if self.stopped:
            return ""
        if literal or not self._stop:
            piece, self._held = self._held + piece, b""
            return self._decoder.decode(piece)
        self._held += piece
        match = self._match()
        if match is not None:
            at, self.stopped_by = match
            piece, self._held = self._held[:at], b""
            return self._decoder.decode(piece, final=True)
        keep = self._partial()
        border = len(self._held) - keep
        piece, self._held = self._held[:border], self._held[border:]
        return self._decoder.decode(piece)

    def interrupt(self, mark: str) -> str:
        """What is held, and ``mark`` behind it: no character or stop string reaches across it."""
        return "" if self.stopped else self.flush() + mark

    def flush(self) -> str:
        """What is still held: no more bytes come. An incomplete character becomes U+FFFD."""
        if self.stopped:
            return ""
        piece, self._held = self._held, b""
        return self._decoder.decode(piece, final=True)

    def _match(self) -> tuple[int, bytes] | None:
        """Where the stop string that ends first begins (of several, the longest), and which."""
        found = [
            (at + len(string), at, string)
            for string in self._stop
            if (at := self._held.find(string)) >= 0
        ]
        return min(found)[1:] if found else None

    def _partial(self) -> int:
        """Length of the longest end of the held bytes that begins a stop string."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            end = self._held[-length:]
            if any(string.startswith(end) for string in self._stop):
                return length
        return 0
