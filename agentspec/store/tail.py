"""One journal file as its reader sees it: complete lines only, from where it stopped last time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

CHUNK_BYTES = 256 * 1024


class Tail:
    """A file followed from its start. ``offset`` is behind the last line that was handed out."""

    __slots__ = ("_fd", "_locked", "offset", "path")

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._locked = False

    def read_lines(self, until: int | None = None) -> list[tuple[int, bytes]]:
        """The next complete lines as (offset, bytes without newline); [] at the end.

        ``until``: go no further than this offset, which must be a line's end.
        """
        size = CHUNK_BYTES
        while True:
            if until is not None:
                size = min(size, until - self.offset)
            data = os.pread(self._fd, size, self.offset)
            end = data.rfind(b"\n") + 1
            if end:
                break
            if len(data) < size or (until is not None and self.offset + size >= until):
                return []
            size *= 2  # a line longer than the chunk
        lines: list[tuple[int, bytes]] = []
        for line in data[: end - 1].split(b"\n"):
            if line:
                lines.append((self.offset, line))
            self.offset += len(line) + 1
        return lines or self.read_lines(until)

    def rest(self) -> bytes:
        """What follows the last complete line: a record cut short."""
        parts = []
        at = self.offset
        while data := os.pread(self._fd, CHUNK_BYTES, at):
            parts.append(data)
            at += len(data)
        return b"".join(parts)

    def try_lock(self) -> bool:
        """Take the owner's lock; False while the owner holds it. Held until ``close``."""
        if not self._locked:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._locked = True
        return True

    def close(self) -> None:
        os.close(self._fd)
