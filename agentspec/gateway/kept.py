"""Answers that clients refer to instead of sending them again: where they are kept.

``KeptHere``: in this process (``memory.py``). ``KeptInSql``: in the database, for all workers and
over restarts. What can't be kept is logged; the answer itself goes out all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from agentspec.settings import Settings
from agentspec.store.answers import AnswerStore
from agentspec.store.database import connect
from agentspec.wire.errors import InternalError

from .clock import Clock
from .memory import Memory

log = logging.getLogger(__name__)

T = TypeVar("T")

_LIMITED = "Answers are kept for a limited time, and not at all when 'store' is false"
WAIT_S = 3.0
"""For how long a request waits for the database."""
_WHOLE = "send the whole conversation instead."


class Kept(Protocol):
    """Bytes by (scope, name), for a limited time. excuse: why a name may not be found."""

    @property
    def excuse(self) -> str: ...

    async def put(self, scope: str, entries: Mapping[str, bytes]) -> None: ...

    async def get(self, scope: str, names: Collection[str]) -> dict[str, bytes]:
        """What is there. Raises ``InternalError`` where that can't be told."""
        ...

    async def drop(self, scope: str, names: Collection[str]) -> None:
        """Forget names. Raises ``InternalError``."""
        ...

    def close(self) -> None: ...


def kept_for(settings: Settings, clock: Clock) -> Kept:
    """What ``store.responses`` asks for. Raises ``StoreError`` for a URL that can't be used."""
    if settings.store.responses == "sql":
        return KeptInSql(AnswerStore(connect(settings.database_url), clock.now_ms))
    return KeptHere(Memory(clock.tick_s), settings.server.workers)


class KeptHere:
    """workers: how many gateway workers there are, of which each has a memory of its own."""

    def __init__(self, memory: Memory, workers: int = 1):
        self._memory = memory
        self.excuse = f"{_LIMITED}: {_WHOLE}"
        if workers > 1:
            self.excuse = (
                f"This gateway runs {workers} workers that keep answers each in its own memory, "
                'and this one doesn\'t know it: set store.responses = "sql" to share them, or '
                f"{_WHOLE} ({_LIMITED}.)"
            )

    async def put(self, scope: str, entries: Mapping[str, bytes]) -> None:
        for name, value in entries.items():
            self._memory.put(scope, name, value)

    async def get(self, scope: str, names: Collection[str]) -> dict[str, bytes]:
        found = ((name, self._memory.get(scope, name)) for name in names)
        return {name: value for name, value in found if value is not None}

    async def drop(self, scope: str, names: Collection[str]) -> None:
        for name in names:
            self._memory.drop(scope, name)

    def close(self) -> None:
        pass


class KeptInSql:
    """The database is asked in threads: while it is slow, other requests go on. One that doesn't
    answer within ``wait_s`` can't be reached."""

    excuse = f"{_LIMITED}: {_WHOLE}"

    def __init__(self, store: AnswerStore, wait_s: float = WAIT_S):
        self._store = store
        self._wait_s = wait_s

    async def put(self, scope: str, entries: Mapping[str, bytes]) -> None:
        try:
            await self._asked(self._store.put, scope, entries)
        except Exception as error:
            log.error("an answer could not be kept: %s", error)

    async def get(self, scope: str, names: Collection[str]) -> dict[str, bytes]:
        try:
            return await self._asked(self._store.get, scope, names)
        except Exception as error:
            raise _unreadable(error) from error

    async def drop(self, scope: str, names: Collection[str]) -> None:
        try:
            await self._asked(self._store.drop, scope, names)
        except Exception as error:
            raise _unreadable(error) from error

    async def _asked(self, what: Callable[..., T], *args: object) -> T:
        try:
            async with asyncio.timeout(self._wait_s):
                return await asyncio.to_thread(what, *args)
        except TimeoutError:
            raise TimeoutError("the database does not answer") from None

    def close(self) -> None:
        self._store.close()


def _unreadable(error: Exception) -> InternalError:
    log.error("the kept answers cannot be reached: %s", error)
    return InternalError("The kept answers cannot be reached now.", code="store_error")
