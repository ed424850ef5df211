"""Reading a text that is still being written: generators that wait wherever more must be known.

Each reading method is a generator; it yields where it waits for more text and returns what it
read. What is returned depends on the text alone, never on how it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]

_SPACE = " \t\r\n"


class Torn(Exception):
    """The text ended inside something that had begun."""


class Cursor:
    """A place in a growing text. ``text[pos:]`` is unread; ``ended``: no more comes.

    mark: where to; what lies behind it is kept, so that a reader can go back.
    """

    __slots__ = ("text", "pos", "ended", "mark")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.ended = False
        self.mark: int | None = None

    def push(self, text: str) -> None:
        """Append; forget what was read and is not kept."""
        keep = self.pos if self.mark is None else self.mark
        self.text = self.text[keep:] + text
        self.pos -= keep
        self.mark = None if self.mark is None else 0

    def back(self) -> None:
        """Return to the mark, and drop it."""
        assert self.mark is not None
        self.pos, self.mark = self.mark, None

    def more(self) -> Reading[None]:
        """Wait for more text. Raises ``Torn`` where there is none."""
        if self.ended:
            raise Torn
        yield

    def space(self, most: int | None = None) -> Reading[int]:
        """Skip white space (at most so much) and return how much there was."""
        count = 0
        while most is None or count < most:
            if self.pos == len(self.text):
                if self.ended:
                    break
                yield
            elif self.text[self.pos] in _SPACE:
                self.pos += 1
                count += 1
            else:
                break
        return count

    def peek(self) -> Reading[str]:
        """The next character; "" at the end."""
        while self.pos == len(self.text) and not self.ended:
            yield
        return self.text[self.pos : self.pos + 1]

    def take(self, *options: str) -> Reading[str | None]:
        """Skip the longest of the options that stands here, and return it; None: none does."""
        while True:
            unread = len(self.text) - self.pos
            whole = [o for o in options if o and self.text.startswith(o, self.pos)]
            longest = max(map(len, whole), default=0)
            longer = [o for o in options if len(o) > max(unread, longest)]
            if longer and not self.ended and self.could_continue(longer):
                yield
                continue
            self.pos += longest
            return next((o for o in whole if len(o) == longest), None)

    def could_continue(self, options: Iterable[str]) -> bool:
        """Whether the unread text, all there is, is a proper beginning of an option."""
        rest = self.text[self.pos :]
        return any(len(rest) < len(o) and o.startswith(rest) for o in options)

    def run(self, pattern: re.Pattern[str], most: int) -> Reading[str]:
        """The longest run of characters that a pattern of one character allows, up to ``most``."""
        pieces: list[str] = []
        size = 0
        while size < most:
            if self.pos == len(self.text):
                if self.ended:
                    break
                yield
                continue
            if not pattern.match(self.text, self.pos):
                break
            pieces.append(self.text[self.pos])
            self.pos += 1
            size += 1
        return "".join(pieces)

    def up_to(self, *markers: str) -> tuple[str, str | None]:
        """(text up to the first marker, that marker), both skipped; (text that cannot be part of a
        marker, None) where none has come yet. Not a generator: the caller may pass the text on."""
        start = self.pos
        found = _any_of(markers).search(self.text, start)
        first = len(self.text) if found is None else found.start()
        held = 0 if self.ended else held_back(self.text, start, markers)
        border = min(first, len(self.text) - held)
        if found is not None and (not held or len(self.text) - held > first):
            self.pos = found.end()
            return self.text[start:first], found.group()
        self.pos = border
        return self.text[start:border], None

    def through(self, *markers: str) -> Reading[tuple[str, str]]:
        """(text before the first marker, that marker). Raises ``Torn``."""
        pieces: list[str] = []
        while True:
            piece, marker = self.up_to(*markers)
            pieces.append(piece)
            if marker is not None:
                return "".join(pieces), marker
            yield from self.more()


@lru_cache(maxsize=256)
def _any_of(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


def held_back(text: str, start: int, markers: Iterable[str]) -> int:
    """How many last characters of ``text[start:]`` may be the beginning of a marker."""
    longest = 0
    for marker in markers:
        for size in range(min(len(marker) - 1, len(text) - start), longest, -1):
            if text.endswith(marker[:size]):
                longest = size
                break
    return longest
