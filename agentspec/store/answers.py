"""Answers kept in SQL for clients that refer to them, for a while and under their caller's scope.

Beside the ledger, not part of it: these rows hold text, are written by every gateway worker, and go
when their time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sqlalchemy import Engine, delete, select, tuple_

from .database import upsert
from .schema import kept_answer

KEEP_MS = 3_600_000
BATCH_ROWS = 500
_PRUNE_EVERY_MS = 10_000


class AnswerStore:
    """Bytes by (scope, name). Every method blocks; any thread may call it.

    now_ms: Unix milliseconds (shared by all workers, hence wall time).
    Raises ``SQLAlchemyError`` where the database fails.
    """

    def __init__(self, engine: Engine, now_ms: Callable[[], int], *, keep_ms: int = KEEP_MS):
        self._engine = engine
        self._now_ms = now_ms
        self._keep_ms = keep_ms
        self._prune_at_ms = 0

    def put(self, scope: str, entries: Mapping[str, bytes]) -> None:
        """Keep values, over those of the same names; now and then delete what is over."""
        expires_ms = self._now_ms() + self._keep_ms
        rows = [
            {"scope": scope, "name": name, "value": value, "expires_ms": expires_ms}
            for name, value in entries.items()
        ]
        if rows:
            with self._engine.begin() as connection:
                connection.execute(upsert(self._engine, kept_answer), rows)
        if self._now_ms() >= self._prune_at_ms:
            self._prune_at_ms = self._now_ms() + _PRUNE_EVERY_MS
            if self.prune() == BATCH_ROWS:
                self._prune_at_ms = 0

    def get(self, scope: str, names: Collection[str]) -> dict[str, bytes]:
        """The values that are there and not over."""
        columns = kept_answer.c
        query = select(columns.name, columns.value).where(
            columns.scope == scope,
            columns.name.in_(names),
            columns.expires_ms > self._now_ms(),
        )
        with self._engine.connect() as connection:
            return {name: bytes(value) for name, value in connection.execute(query)}

    def drop(self, scope: str, names: Collection[str]) -> None:
        columns = kept_answer.c
        with self._engine.begin() as connection:
            connection.execute(
                delete(kept_answer).where(columns.scope == scope, columns.name.in_(names))
            )

    def prune(self, limit: int = BATCH_ROWS) -> int:
        """Delete up to ``limit`` rows whose time is over, the oldest first; returns how many."""
        columns = kept_answer.c
        key = tuple_(columns.scope, columns.name)
        over = (
            select(columns.scope, columns.name)
            .where(columns.expires_ms <= self._now_ms())
            .order_by(columns.expires_ms)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            return connection.execute(delete(kept_answer).where(key.in_(over))).rowcount

    def close(self) -> None:
        self._engine.dispose()
