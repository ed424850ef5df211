"""The exchange with the limit store, for all requests of a process together.

At most one transaction runs at a time, in a thread; whoever needs something while it runs joins the
next one. Once a ``BEAT_S`` it tells what was used and renews the leases. While nothing is limited
there are no accounts, and nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from agentspec.store.budgets import Limit, period
from agentspec.store.leases import Ask, Grant, Leases, Place
from agentspec.wire.errors import Overloaded

from .clock import Clock
from .limits_account import Account

log = logging.getLogger(__name__)

BEAT_S = 1.0
WAIT_S = 3.0
"""For how long a request waits for the store. One that hangs is away."""


class StoreAway(Overloaded):
    """What a key may still use cannot be told, so it may use nothing."""

    code = "limits_unavailable"

    def __init__(self) -> None:
        super().__init__("The limits of this API key cannot be checked now. Please try again soon.")
        self.headers = {"retry-after": "1"}


class Pump:
    """Accounts, and what keeps them in step with the store. make: opens the store on first use."""

    def __init__(
        self,
        make: Callable[[], Leases],
        clock: Clock,
        *,
        beat_s: float = BEAT_S,
        wait_s: float = WAIT_S,
    ):
        self._make = make
        self._clock = clock
        self._beat_s = beat_s
        self._wait_s = wait_s
        self._hangs = False
        self._leases: Leases | None = None
        self._away = False
        self._accounts: dict[Place, Account] = {}
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._heart: asyncio.Task[None] | None = None

    def account(self, limit: Limit, now_ms: int) -> Account:
        """The account of a limit in its period of now."""
        current = period(limit.kind, now_ms)
        place = (limit.owner, limit.kind, current.start_ms)
        found = self._accounts.get(place)
        if found is None:
            found = self._accounts[place] = Account(limit, current)
        elif found.limit is not limit:
            found.limit = limit
        return found

    async def fill(self) -> None:
        """Exchange for everything that is needed. Raises ``StoreAway``, within ``wait_s``; at once
        while an exchange hangs."""
        task = self._soon()
        await asyncio.wait([task], timeout=0 if self._hangs else self._wait_s)
        if not task.done():
            self._hangs = True
            self._now_away(TimeoutError("the database does not answer"))
            raise StoreAway
        task.result()

    def nudge(self) -> None:
        """Exchange soon, without anybody waiting for it."""
        self._soon()

    def _soon(self) -> asyncio.Task[None]:
        if self._next is None:
            self._next = asyncio.create_task(self._round())
            self._next.add_done_callback(_looked_at)
        if self._heart is None or self._heart.done():
            self._heart = asyncio.create_task(self._beats())
        return self._next

    async def _round(self) -> None:
        async with self._lock:
            self._next = None
            told = [(account, account.ask()) for account in self._accounts.values()]
            if not told:
                return
            began_s = self._clock.tick_s()
            try:
                grants = await asyncio.to_thread(self._exchange, [ask for _, ask in told])
            except Exception as error:
                for account, ask in told:
                    account.failed(ask)
                self._now_away(error)
                raise StoreAway from error
            finally:
                self._hangs = False
            self._now_away(None)
            assert self._leases is not None
            for account, ask in told:
                lease_s = self._leases.lease_ms / 1000
                if ask.place in grants:
                    account.granted(ask, grants[ask.place], began_s, lease_s)
                else:
                    account.refused(ask, began_s)

    def _exchange(self, asks: list[Ask]) -> dict[Place, Grant]:
        if self._leases is None:
            self._leases = self._make()
        return self._leases.exchange(asks)

    def _now_away(self, error: Exception | None) -> None:
        """Log that the store went away, or came back; not that it still is."""
        if error is not None and not self._away:
            log.error("the limits cannot be checked: %s", getattr(error, "orig", None) or error)
        elif error is None and self._away:
            log.warning("the limits can be checked again")
        self._away = error is not None

    async def _beats(self) -> None:
        """Until all accounts are idle."""
        while self._accounts:
            await asyncio.sleep(self._beat_s)
            for account in self._accounts.values():
                account.beat()
            with contextlib.suppress(StoreAway):
                await self.fill()
            if self._lock.locked():
                continue  # what is being told may still come back
            for place in [p for p, account in self._accounts.items() if account.idle]:
                del self._accounts[place]

    async def aclose(self) -> None:
        """Tell the last, and give everything back, if the store answers."""
        if self._heart is not None:
            self._heart.cancel()
        if self._leases is None:
            return
        for account in self._accounts.values():
            account.spare = 0
        with contextlib.suppress(StoreAway, TimeoutError):
            async with asyncio.timeout(self._wait_s):
                await (self._next or self._round())  # none may come behind the leaving
                await asyncio.to_thread(self._leases.leave)
        self._leases.close()


def _looked_at(task: asyncio.Task[None]) -> None:
    """A round that failed has been logged; not everybody who started one waits for it."""
    if not task.cancelled():
        task.exception()
