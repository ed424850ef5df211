"""The reading side of the journals: from files that others append to, to batches of rows.

    one file          a ``Tail``: how far it was read, which requests it opened and did not close
    one process       an ``Owner``: its files in order; dead once all their locks can be taken
    one data folder   ``Journals``: ``read`` takes what is new, ``settle`` deletes what is done with

Nothing here touches the database. What was read but not committed is read again after a restart,
from the offsets that were committed with the rows.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .journal import FOLDER, SUFFIX
from .record import EndedRecord, Note, OpenRecord, RequestRecord
from .tail import Tail

log = logging.getLogger(__name__)

Record = OpenRecord | RequestRecord | Note


@dataclass(slots=True)
class Batch:
    """What one transaction commits: finished requests and the offsets up to which they lie.

    lost: requests that died with their process; notes: what goes beside a request's row; finished:
    files that hold nothing more once the batch is committed; bad: unreadable lines met on the way.
    """

    rows: list[RequestRecord] = field(default_factory=list)
    lost: list[RequestRecord] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    bad: int = 0

    def __bool__(self) -> bool:
        """Worth a transaction: opening records alone are simply read again after a restart."""
        return bool(self.rows or self.lost or self.notes or self.finished)


@dataclass(slots=True)
class Owner:
    """One process's files, by name (in their order), and its requests in flight, by id."""

    tails: dict[str, Tail] = field(default_factory=dict)
    opened: dict[str, tuple[str, OpenRecord]] = field(default_factory=dict)
    dead: bool = False


class Journals:
    """The journals of one data folder. ``offsets``: what the database says was drained already.

    Not thread-safe, and only for the holder of the writer's lock.
    """

    def __init__(self, directory: Path, offsets: dict[str, int]):
        self.folder = Path(directory) / FOLDER
        self._offsets = offsets
        self._owners: dict[str, Owner] = {}
        self._turns: deque[str] = deque()
        self._unreadable: set[str] = set()
        self._decoder = msgspec.json.Decoder(OpenRecord | EndedRecord | Note)

    def read(self, limit: int) -> Batch:
        """The next batch, of about ``limit`` rows (one read's worth more, at most)."""
        batch = Batch()
        for name in self._names():
            try:
                self._adopt(name)
            except PermissionError as error:  # another user's: must not hold up everybody else
                if name not in self._unreadable:
                    self._unreadable.add(name)
                    log.error("%s is left alone: %s", name, error)
        for _ in range(len(self._turns)):
            if len(batch.rows) >= limit:
                break
            self._turns.rotate(-1)
            self._read_owner(self._turns[-1], batch, limit)
        return batch

    def settle(self, batch: Batch) -> None:
        """Delete the files that ``batch``, committed by now, was the last of."""
        for name in batch.finished:
            owner = self._owners[_owner(name)]
            # Unlinked under its lock: an owner that was only about to lock it sees it gone.
            (self.folder / name).unlink(missing_ok=True)
            owner.tails.pop(name).close()
            if not owner.tails:
                del self._owners[_owner(name)]
                self._turns.remove(_owner(name))

    def in_flight(self) -> list[str]:
        """Ids of the requests that were opened and, as far as was read, not closed."""
        return [name for owner in self._owners.values() for name in owner.opened]

    def forget(self, ids: set[str]) -> None:
        """These are closed: their closing record lay in a file that a former writer deleted."""
        for owner in self._owners.values():
            for name in ids & owner.opened.keys():
                del owner.opened[name]

    def close(self) -> None:
        """Let go of the files, changing nothing."""
        for owner in self._owners.values():
            for tail in owner.tails.values():
                tail.close()
        self._owners.clear()
        self._turns.clear()

    def _names(self) -> list[str]:
        try:
            return sorted(p.name for p in self.folder.iterdir() if p.name.endswith(SUFFIX))
        except FileNotFoundError:
            return []

    def _adopt(self, name: str) -> None:
        """Start to follow a file; what was drained before says which requests are in flight."""
        owner = self._owners.get(_owner(name))
        if owner is not None and name in owner.tails:
            return
        tail = Tail(self.folder / name)
        if owner is None:
            owner = self._owners[_owner(name)] = Owner()
            self._turns.append(_owner(name))
        owner.tails[name] = tail
        drained = self._offsets.pop(name, 0)
        while tail.offset < drained and (lines := tail.read_lines(drained)):
            for _, line in lines:
                record = self._decode(line)
                if record is not None and not isinstance(record, Note):
                    self._track(owner, name, record)

    def _read_owner(self, key: str, batch: Batch, limit: int) -> None:
        owner = self._owners[key]
        owner.dead = owner.dead or self._is_dead(key, owner)
        names = list(owner.tails)
        for name in names:
            tail = owner.tails[name]
            while lines := tail.read_lines():
                self._take(owner, name, lines, batch)
                batch.offsets[name] = tail.offset
                if len(batch.rows) >= limit:
                    return
        if owner.dead:
            batch.lost += [_lost(opened) for _, opened in owner.opened.values()]
            owner.opened.clear()
        else:
            names.pop()  # the others are rotated away: nothing will be appended to them
        in_flight = {name for name, _ in owner.opened.values()}
        for name in names:
            if name not in in_flight:
                self._finish(owner.tails[name], batch)

    def _is_dead(self, key: str, owner: Owner) -> bool:
        """Whether every file's lock can be taken, and no newer file came up while trying.

        A living owner locks its next file before it lets go of the last, so it cannot slip through.
        """
        if not all(tail.try_lock() for tail in owner.tails.values()):
            return False
        return {n for n in self._names() if _owner(n) == key} <= owner.tails.keys()

    def _take(self, owner: Owner, name: str, lines: list[tuple[int, bytes]], batch: Batch) -> None:
        for offset, line in lines:
            record = self._decode(line)
            if record is None:
                self._keep_bad(owner.tails[name], offset, line, batch)
                continue
            if isinstance(record, Note):
                batch.notes.append(record)
                continue
            self._track(owner, name, record)
            if isinstance(record, RequestRecord):
                batch.rows.append(record)

    def _decode(self, line: bytes) -> Record | None:
        try:
            line.decode()  # what isn't taken apart is not looked at otherwise
            return self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    @staticmethod
    def _track(owner: Owner, name: str, record: OpenRecord | RequestRecord) -> None:
        if isinstance(record, OpenRecord):
            owner.opened[record.id] = (name, record)
        else:
            owner.opened.pop(record.id, None)

    def _finish(self, tail: Tail, batch: Batch) -> None:
        """Nothing will follow: what stands behind the last newline was cut short."""
        if rest := tail.rest():
            self._keep_bad(tail, tail.offset, rest, batch)
        batch.finished.append(tail.path.name)

    def _keep_bad(self, tail: Tail, offset: int, line: bytes, batch: Batch) -> None:
        batch.bad += 1
        log.warning("%s: unreadable record at byte %d, kept beside it", tail.path, offset)
        with open(tail.path.with_suffix(".bad"), "ab") as file:
            file.write(line + b"\n")


def _owner(name: str) -> str:
    return name.split(".", 1)[0]


def _lost(opened: OpenRecord) -> RequestRecord:
    """The row of a request whose process died under it: no status, tokens or time is known."""
    fields = {name: getattr(opened, name) for name in opened.__struct_fields__}
    return RequestRecord(**fields, status="lost", http_status=None, token_source="none")
