"""The journal: how a request's record outlives the process that served it.

A process appends to a file of its own, ``DIR/journal/OWNER.SEQUENCE.jsonl``, one write(2) a record.
Data handed to write(2) belongs to the kernel, so ``kill -9`` cannot take it back; a power failure
can (nothing here is fsynced). The file stays exclusively flocked while its owner lives and the
kernel drops the lock with the process, so whoever can take the lock knows that the owner is dead.
The reading side is ``replay.py``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
import weakref
from pathlib import Path

import msgspec

from .errors import JournalError
from .record import Note, OpenRecord, RequestRecord

FOLDER = "journal"
SUFFIX = ".jsonl"
ROTATE_BYTES = 8 * 1024 * 1024


class Journal:
    """The records of this process. Thread-safe; a forked child continues in a file of its own.

    ``directory`` is the data folder; the files lie in ``directory/journal``, which is made when the
    first record is written. A file beyond ``rotate_bytes`` is followed by a new one, so that the
    drained one can be deleted.
    """

    def __init__(self, directory: Path, *, rotate_bytes: int = ROTATE_BYTES):
        self._folder = Path(directory) / FOLDER
        self._rotate_bytes = rotate_bytes
        self._encoder = msgspec.json.Encoder()
        self._mutex = threading.Lock()
        self._fd: int | None = None
        self._reset()
        child = weakref.WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (method := child()) and method())

    def open(self, record: OpenRecord) -> None:
        """Journal that a request was taken in. Raises ``JournalError``."""
        self._append(record)

    def close(self, record: RequestRecord, *notes: Note) -> None:
        """Journal a finished request; call before its last byte is sent. Raises ``JournalError``.

        ``notes`` go with it in the same write(2). Several calls with one ``id`` leave the row of
        the first.
        """
        self._append(*notes, record)

    def release(self) -> None:
        """Give the file up: whatever is open from here on counts as lost. Safe to call twice."""
        with self._mutex:
            if self._fd is not None:
                os.close(self._fd)
            self._reset()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _append(self, *records: OpenRecord | RequestRecord | Note) -> None:
        try:
            line = b"".join([self._encoder.encode(record) + b"\n" for record in records])
        except (TypeError, ValueError, OverflowError) as error:
            name = records[-1].id
            raise JournalError(f"request {name!r} cannot be journalled: {error}") from error
        with self._mutex:
            try:
                written = self._write(line)
            except OSError as error:
                raise JournalError(
                    f"the journal in {self._folder} cannot be written: {error.strerror}",
                    errno=error.errno or 0,
                ) from error
        if written < len(line):
            raise JournalError(
                f"the journal in {self._folder} took only part of a record (disk full?)",
                errno=errno.ENOSPC,
            )

    def _write(self, line: bytes) -> int:
        """One write(2). A record cut short by a full disk is ended by the next one's newline."""
        fd = self._file()
        data = b"\n" + line if self._torn else line
        written = os.write(fd, data)
        self._size += written
        written -= len(data) - len(line)
        self._torn = written < len(line)
        return written

    def _file(self) -> int:
        if self._fd is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = self._create()
        elif self._size >= self._rotate_bytes:
            self._rotate(self._fd)
        return self._fd

    def _rotate(self, old: int) -> None:
        """The new file is there and locked before the old lock goes: the owner never looks dead."""
        try:
            self._fd = self._create()
        except OSError:
            return  # no room for another file: the old one goes on growing
        os.close(old)

    def _create(self) -> int:
        """A new, locked file. The writer may take an unlocked one for a dead owner's: try again."""
        while True:
            self._sequence += 1
            path = self._folder / f"{self._owner}.{self._sequence:06d}{SUFFIX}"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_nlink:
                    self._size, self._torn = 0, False
                    return fd
            except BlockingIOError:
                pass
            os.close(fd)

    def _reset(self) -> None:
        """A new owner without a file."""
        self._fd = None
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._sequence = 0
        self._size = 0
        self._torn = False

    def _after_fork(self) -> None:
        # Closing only this copy leaves the parent's lock in force; unlocking would take it away.
        if self._fd is not None:
            os.close(self._fd)
        self._mutex = threading.Lock()  # the parent's may have been held by another thread
        self._reset()
