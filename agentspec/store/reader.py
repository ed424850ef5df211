"""The ledger for those who only read it: one question, one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from agentspec.settings import PoolSettings

from . import requests
from .acceptance import Acceptance, acceptance
from .breakdown import Place, breakdown
from .database import connect_reader
from .errors import StoreError
from .glance import Glance, glance
from .keys_report import KeysOverview, keys_and_projects
from .latency import Latency, latency
from .migrate import require_current
from .rebuild import floors
from .record import RequestRecord
from .requests import Filters
from .series import Bucket, series
from .slices import Slice
from .totals import Totals, few, totals
from .window import Window


class LedgerUnavailable(StoreError):
    """The database does not answer."""

    code = "ledger_unavailable"


@dataclass(frozen=True, slots=True)
class Overview:
    """The answers behind the first page, all of one snapshot."""

    totals: Totals
    series: list[Bucket]
    acceptance: Acceptance
    ttft: Latency
    e2e: Latency
    places: list[Place]
    recent: list[RequestRecord]


class Reader:
    """Reads the ledger at ``url``; connects at the first question. Thread-safe, blocking.

    Every question may raise ``LedgerUnavailable``, or ``SchemaMismatch`` when the database is not
    at this code's revision.
    """

    def __init__(self, url: str):
        self._engine = connect_reader(url)
        if self._engine.dialect.name == "postgresql":
            self._engine = self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._checked = False

    def overview(
        self,
        window: Window,
        bucket_ms: int,
        recent: int = 50,
        where: Mapping[str, str] | None = None,
    ) -> Overview:
        """Everything about a window, its last ``recent`` requests included.

        where: dimension -> value, of one cube (``rollup_schema.CUBES``).
        """
        with self._snapshot() as connection:
            kept = {name: _as_kept(value) for name, value in (where or {}).items()}
            slice = Slice(window, kept, floors(connection))
            rows = few(connection, slice)
            return Overview(
                totals=totals(connection, slice),
                series=series(connection, slice, bucket_ms),
                acceptance=acceptance(connection, slice),
                ttft=latency(connection, slice, "ttft", rows=rows),
                e2e=latency(connection, slice, "e2e", rows=rows),
                places=breakdown(connection, slice),
                recent=requests.recent(connection, window, recent, where=slice.where),
            )

    def recent(
        self,
        window: Window,
        limit: int,
        filters: Filters,
        before: tuple[int, str] | None = None,
    ) -> list[RequestRecord]:
        """See ``requests.recent``."""
        filters = Filters(*map(_as_kept, astuple(filters)))
        if before is not None:
            before = before[0], _as_kept(before[1])
        with self._snapshot() as connection:
            return requests.recent(connection, window, limit, filters=filters, before=before)

    def request(self, id: str) -> RequestRecord | None:
        """See ``requests.one``."""
        with self._snapshot() as connection:
            return requests.one(connection, _as_kept(id))

    def keys(self, now_ms: int) -> KeysOverview:
        """See ``keys_report.keys_and_projects``."""
        with self._snapshot() as connection:
            return keys_and_projects(connection, now_ms)

    def costs(self, pools: Mapping[str, PoolSettings], window: Window) -> Glance:
        """See ``glance.glance``."""
        with self._snapshot() as connection:
            return glance(connection, pools, window)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        try:
            if not self._checked:
                require_current(self._engine)
                self._checked = True
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = getattr(error, "orig", None) or error
            raise LedgerUnavailable(f"the ledger's database does not answer: {reason}") from error


def _as_kept(text: str) -> str:
    """As the writer keeps it (``rows.to_row``): PostgreSQL refuses a NUL, and has none."""
    return text.replace("\0", "\ufffd")
