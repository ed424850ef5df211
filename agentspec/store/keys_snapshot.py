"""Every key at one moment, as a gateway process holds them in memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, select

from .budgets import Limit
from .database import connect_reader, missing_file, which_file
from .errors import StoreError
from .keys import KeyRecord, key_record, limits_of, project_owner
from .keys_schema import api_key, key_epoch

log = logging.getLogger(__name__)

MARKER = "keys-were-made"
"""A file in the data folder: a database without keys in it is another one, or has lost them."""


@dataclass(frozen=True, slots=True)
class Held:
    """A key under one of its hashes. until_ms: when that hash ends (None: with the key).

    limits: the key's own and its project's.
    """

    key: KeyRecord
    limits: tuple[Limit, ...]
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """by_hash: keys by the hash of their secret, revoked and expired ones included. epoch: grows
    with every change."""

    epoch: int
    by_hash: dict[str, Held]

    @property
    def any(self) -> bool:
        """Whether a key was ever made here."""
        return bool(self.by_hash)


NOTHING = Snapshot(-1, {})


class KeysGone(StoreError):
    """Keys were known, and the database has none any more. They are revoked, never deleted: so it
    isn't there, or is another one."""

    code = "keys_gone"


def mark(folder: Path) -> None:
    """Leave word in the data folder that keys were made. A folder that takes none is logged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).touch(mode=0o600)
    except OSError as error:
        log.warning("that API keys exist cannot be noted in %s: %s", folder, error.strerror)


class SqlKeys:
    """The keys in the database at ``url``, opened on first use, for reading only.

    folder: the data folder, in which it is noted that there are keys, so that a gateway started
    after the database was lost knows.
    """

    def __init__(self, url: str, folder: Path | None = None):
        self._url = url
        self._folder = folder
        self._marked = False
        self._engine = connect_reader(url)
        self._file: tuple[int, int] | None = None

    def newer(self, known: Snapshot | None) -> Snapshot:
        """The keys as they are now; ``known`` itself where nothing has changed since.

        A database that is not there yet, or has no tables yet, has no keys. Blocks; raises
        ``SQLAlchemyError`` where it cannot be asked, ``KeysGone`` where it has lost those in
        ``known``, or those that the data folder says were made.
        """
        file = which_file(self._url)
        if file != self._file:
            self._engine.dispose()  # an open file would be read on after another took its name
            self._file = file
        missing = missing_file(self._url)
        found = NOTHING if missing is not None else _newer(self._engine, known)
        if known is not None and known.any and not found.any:
            what = f"{missing} is not there" if missing else "they are not in it any more"
            raise KeysGone(f"the database has lost its API keys: {what}")
        self._compare(found)
        return found

    def _compare(self, found: Snapshot) -> None:
        """With what the data folder says."""
        if self._folder is None or self._marked:
            return
        if found.any:
            mark(self._folder)
            self._marked = True
        elif (self._folder / MARKER).exists():
            raise KeysGone(
                "API keys were made here, and the database has none: put the right one back, make "
                f"a key, or delete {self._folder / MARKER} if nobody shall need a key any more"
            )

    def close(self) -> None:
        self._engine.dispose()


def _newer(engine: Engine, known: Snapshot | None) -> Snapshot:
    with engine.connect() as connection:
        if (known is None or known is NOTHING) and not inspect(connection).has_table("key_epoch"):
            return NOTHING
        epoch = connection.execute(select(key_epoch.c.value)).scalar() or 0
        if known is not None and known.epoch == epoch:
            return known
        return Snapshot(epoch, _by_hash(connection))


def _by_hash(connection: Connection) -> dict[str, Held]:
    limits = limits_of(connection)
    found: dict[str, Held] = {}
    for row in connection.execute(select(api_key)):
        key = key_record(row, limits)
        shared = limits.get(project_owner(key.project), ()) if key.project else ()
        found[row.hash] = Held(key, (*key.limits, *shared))
        if row.old_hash is not None:
            found[row.old_hash] = Held(key, (*key.limits, *shared), row.old_until_ms)
    return found
