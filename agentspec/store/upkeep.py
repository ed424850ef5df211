"""What the elected writer does beside draining: partitions ahead of time, and what is too old away.

A step is one short transaction, between two batches of rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Engine, text

from agentspec.settings import StoreSettings

from . import partition
from .retention import give_back, prune_once
from .rollup_schema import DAY_MS

EVERY_MS = 60_000
_ADVISORY_LOCK = 0x61676E76


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Upkeep:
    """Of one database. Several writers (of several data folders, on PostgreSQL) take turns."""

    def __init__(self, engine: Engine, settings: StoreSettings, clock: Callable[[], int] = now_ms):
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._next_ms = 0
        self._waiting: list[tuple[str, int]] = []

    def step(self) -> bool:
        """Do one thing if it is time to; whether there is probably more. Raises what SQLAlchemy
        raises."""
        at_ms = self._clock()
        if not self._waiting:
            if at_ms < self._next_ms:
                return False
            self._next_ms = at_ms + EVERY_MS
            self._partitions(at_ms)
            self._waiting = self._too_old(at_ms)
            return bool(self._waiting)
        what, before_ms = self._waiting[-1]
        if not prune_once(self._engine, what, before_ms):
            self._waiting.pop()
            give_back(self._engine)
        return bool(self._waiting)

    def _partitions(self, at_ms: int) -> None:
        if self._engine.dialect.name != "postgresql":
            return
        with self._engine.begin() as connection:
            mine = text("SELECT pg_try_advisory_xact_lock(:key)")
            if connection.scalar(mine, {"key": _ADVISORY_LOCK}):
                partition.ensure(connection, partition.MONTHLY, at_ms)
                if self._settings.payloads:
                    partition.ensure(connection, partition.DAILY, at_ms)

    def _too_old(self, at_ms: int) -> list[tuple[str, int]]:
        kept_days = {
            "minute": self._settings.keep_minutes_days,
            "payload": self._settings.keep_payload_days,
            "request": self._settings.keep_days,
        }
        return [
            (what, at_ms - int(days * DAY_MS))
            for what, days in kept_days.items()
            if days is not None
        ]
