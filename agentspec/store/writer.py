"""The one writer: drains every process's journal into the database.

Whoever holds ``DIR/journal/writer.lock`` is the writer; the others wait and take over when it dies.
Rows and the offsets behind them are committed together and a row's key is the request's id, so a
kill at any point leaves exactly one row a finished request.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from agentspec.settings import Settings

from .database import connect
from .journal import FOLDER
from .migrate import require_current
from .pricer import Pricer
from .replay import Batch, Journals
from .rows import commit, existing, load_offsets, reason
from .upkeep import Upkeep

log = logging.getLogger(__name__)

LOCK = "writer.lock"
MAX_BACKOFF_S = 5.0


@dataclass(slots=True)
class Drained:
    """Totals of one ``Writer``, in rows; ``bad`` counts unreadable lines and refused rows."""

    rows: int = 0
    lost: int = 0
    bad: int = 0


class Writer:
    """Drains the journals under ``directory`` into ``engine``. Only for the lock's holder.

    pricer: takes a last look at requests of unknown cost. Raises ``SchemaMismatch`` when the
    database is not at this code's revision.
    """

    def __init__(self, engine: Engine, directory: Path, pricer: Pricer | None = None):
        require_current(engine)
        self._pricer = pricer
        self.drained = Drained()
        self._engine = engine
        self._journals = Journals(directory, load_offsets(engine))
        self._pending: Batch | None = None
        self._caught_up = False

    def drain_once(self, limit: int = 500) -> int:
        """Commit the next batch of about ``limit`` rows and return its size; 0: nothing was new.

        After an exception nothing is lost: the same batch is tried again by the next call.
        """
        if self._pending is None:
            self._pending = self._journals.read(limit)
            self.drained.bad += self._pending.bad
        batch = self._pending
        self._reconcile(batch, limit)
        if batch:
            if self._pricer is not None:
                self._pricer.last_look(self._engine, batch.rows)
            refused = commit(self._engine, batch, self._journals.folder / "refused.bad")
            self._journals.settle(batch)
            self.drained.bad += refused
            self.drained.lost += len(batch.lost)
            self.drained.rows += len(batch.rows) + len(batch.lost) - refused
        self._pending = None
        return len(batch.rows) + len(batch.lost)

    def _reconcile(self, batch: Batch, limit: int) -> None:
        """Find requests that look open because a former writer deleted the file closing them."""
        if batch.lost:
            known = existing(self._engine, [record.id for record in batch.lost])
            batch.lost = [record for record in batch.lost if record.id not in known]
        if not self._caught_up and len(batch.rows) < limit:
            self._journals.forget(existing(self._engine, self._journals.in_flight()))
            self._caught_up = True

    def close(self) -> None:
        """Let go of the journal files. What was not committed stays in them."""
        self._journals.close()


def drain_once(directory: Path, engine: Engine) -> Drained:
    """Drain everything there is now, without election: for tests and for tools on a stopped server.

    Raises ``SchemaMismatch``, or what SQLAlchemy raises when the database cannot be written.
    """
    writer = Writer(engine, directory)
    try:
        while writer.drain_once():
            pass
        return writer.drained
    finally:
        writer.close()


def run(settings: Settings, stop: threading.Event | None = None) -> None:
    """Wait to be the writer, then drain until ``stop`` is set; once more after that, then return.

    A database that is locked or down is tried again with a growing pause; the records wait in the
    journals. Raises ``SchemaMismatch`` when the database is not at this code's revision.
    """
    stop = stop or threading.Event()
    interval_s = settings.store.drain_interval_s
    with elected(settings.data_path, stop, interval_s) as won:
        if won:
            engine = connect(settings.database_url)
            try:
                _Loop(settings, engine, stop).run()
            finally:
                engine.dispose()


@contextmanager
def elected(directory: Path, stop: threading.Event, poll_s: float) -> Iterator[bool]:
    """Wait for the writer's lock and hold it inside the block; False when ``stop`` came first."""
    folder = Path(directory) / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not (won := _try_lock(fd)) and not stop.wait(poll_s):
            pass
        yield won
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Loop:
    """The writer's life. After a failure the pause doubles, up to ``MAX_BACKOFF_S``."""

    def __init__(self, settings: Settings, engine: Engine, stop: threading.Event):
        self._settings = settings
        self._engine = engine
        self._stop = stop
        self._writer: Writer | None = None
        self._upkeep = Upkeep(engine, settings.store)
        self._failures = 0

    def run(self) -> None:
        try:
            while True:
                last = self._stop.is_set()  # looked at first: what came before it is drained
                if self._step():
                    continue
                if last:
                    return
                self._stop.wait(self._pause_s())
        finally:
            if self._writer is not None:
                self._writer.close()

    def _step(self) -> bool:
        """One batch; whether there is probably more."""
        limit = self._settings.store.drain_rows
        try:
            if self._writer is None:
                pricer = Pricer(self._settings)
                self._writer = Writer(self._engine, self._settings.data_path, pricer)
            count = self._writer.drain_once(limit)
        except (SQLAlchemyError, OSError) as error:
            self._failures += 1
            log.warning("the ledger cannot be written, trying again: %s", reason(error))
            return False
        self._failures = 0
        if count < limit:
            self._keep_up()
        return count >= limit

    def _keep_up(self) -> None:
        try:
            self._upkeep.step()
        except SQLAlchemyError as error:
            log.warning("the ledger's upkeep has to wait: %s", reason(error))

    def _pause_s(self) -> float:
        interval_s = self._settings.store.drain_interval_s
        return min(interval_s * 2 ** min(self._failures, 10), max(MAX_BACKOFF_S, interval_s))
