"""Who may use the gateway: the key of the settings, and the keys in SQL.

The keys in SQL are held in memory. While requests come, a glance at a counter in the database
(every ``LOOK_S``, not in any request's way) says whether they have changed; after a pause a request
waits for it where the last one is older than ``STALE_S``. So what is revoked or made takes effect
within ``STALE_S`` in every process; an unknown key is refused only after a look of its own, so a
new one is good at once. No key is asked for where only this machine can come in, no key stands in
the settings, and none was ever made: revoking the last key doesn't open the door.

While the database is away, the keys known last are honoured for ``KNOWN_S``; an unknown key is then
no wrong one, and gets 503.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from agentspec.settings import ServerSettings, Settings, SettingsError, secret
from agentspec.store.keys_snapshot import Held, Snapshot, SqlKeys
from agentspec.wire.access import (
    Guard,
    digest,
    guard_for,
    is_loopback,
    no_key,
    presented,
    wrong_key,
)
from agentspec.wire.errors import AuthenticationFailed, Overloaded, PermissionDenied

from .clock import Clock
from .identity import ANYBODY, Identity, canonical_names

log = logging.getLogger(__name__)

LOOK_S = 1.0
STALE_S = 3.0
AGAIN_S = 0.2
WAIT_S = 2.0
KNOWN_S = 600.0


class KeysAway(Overloaded):
    """Whether a key is good cannot be told."""

    code = "keys_unavailable"

    def __init__(self, message: str = "API keys cannot be checked now. Please try again soon."):
        super().__init__(message)
        self.headers = {"retry-after": "1"}


class KeySource(Protocol):
    """Where keys come from; blocks, raises whatever the database raises."""

    def newer(self, known: Snapshot | None) -> Snapshot: ...

    def close(self) -> None: ...


class Access:
    """Finds whose key a request brings. guard: of the settings' own key; loopback: whether only
    this machine can come in; canonical: models' names by their aliases."""

    def __init__(
        self,
        source: KeySource,
        guard: Guard,
        clock: Clock,
        *,
        loopback: bool,
        canonical: Mapping[str, str] | None = None,
    ):
        self._source = source
        self._canonical = canonical or {}
        self._guard = guard
        self._clock = clock
        self._loopback = loopback
        self._known: Snapshot | None = None
        self._asked_s = self._seen_s = self._failed_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def identify(self, headers: Mapping[str, str]) -> Identity:
        """Whose the request is. headers: names in lower case.

        Raises ``AuthenticationFailed``; ``KeysAway`` where that can't be told.
        """
        now_s = self._clock.tick_s()
        if now_s - self._asked_s >= LOOK_S:
            self._look(now_s)
        keys = presented(headers)
        if not self._guard.open and keys:
            try:
                return Identity(key_id := self._guard.check(headers), key_id)
            except AuthenticationFailed:
                pass  # maybe it is one of those in SQL
        known = await self._snapshot(now_s)
        if not known.any and self._guard.open and self._loopback:
            return ANYBODY
        if not keys:
            raise no_key()
        for key in keys[:-1]:
            try:
                return await self._of_key(digest(key).hex(), known)
            except AuthenticationFailed:
                pass  # maybe the other one is good
        return await self._of_key(digest(keys[-1]).hex(), known)

    async def operator(self, headers: Mapping[str, str]) -> Identity:
        """As ``identify``; raises ``PermissionDenied`` for a key that may not see the ledger."""
        found = await self.identify(headers)
        if not found.operator:
            raise PermissionDenied(
                "This API key may not open the dashboard: it shows the requests of all keys.",
                code="not_an_operator",
            )
        return found

    async def _of_key(self, hashed: str, known: Snapshot) -> Identity:
        held = known.by_hash.get(hashed)
        if held is None:
            await self._look_anew()  # it may have been made this moment
            held = (self._known or known).by_hash.get(hashed)
        if held is None:
            raise wrong_key()
        return self._identity(held)

    async def _look_anew(self) -> None:
        """Wait for a look that begins from now on; there is one each ``AGAIN_S`` at most, however
        many wait. Raises ``KeysAway`` where none has come to its end within ``WAIT_S``."""
        came_s = self._clock.tick_s()
        while self._seen_s < came_s:
            now_s = self._clock.tick_s()
            left_s = came_s + WAIT_S - now_s
            if left_s <= 0 or self._failed_s >= came_s:
                raise KeysAway
            if self._looking is not None and not self._looking.done():
                await asyncio.wait([self._looking], timeout=left_s)
            elif now_s - self._asked_s < AGAIN_S:
                await asyncio.sleep(self._asked_s + AGAIN_S - now_s)
            else:
                self._look(now_s)

    def _identity(self, held: Held) -> Identity:
        now_ms = self._clock.now_ms()
        state = held.key.state(now_ms)
        if held.until_ms is not None and held.until_ms <= now_ms:
            state = "replaced"
        if state != "active":
            raise AuthenticationFailed(f"This API key is {state}.", code=f"{state}_api_key")
        key = held.key
        models = None
        if key.models is not None:
            models = frozenset(self._canonical.get(name, name) for name in key.models)
        return Identity(key.id, key.scope, models, held.limits, key.operator)

    async def _snapshot(self, now_s: float) -> Snapshot:
        if now_s - self._seen_s > STALE_S and now_s - self._failed_s > LOOK_S:
            await self._wait(now_s)
        if self._known is None or now_s - self._seen_s > KNOWN_S:
            raise KeysAway
        return self._known

    async def _wait(self, now_s: float) -> None:
        """For a look; one that takes long already is not waited for by everybody."""
        looking = self._look(now_s)
        left_s = self._asked_s + WAIT_S - now_s
        if left_s > 0:
            await asyncio.wait([looking], timeout=left_s)

    def _look(self, now_s: float) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._asked_s = now_s
            self._looking = asyncio.create_task(self._read(now_s))
        return self._looking

    async def _read(self, began_s: float) -> None:
        try:
            self._known = await asyncio.to_thread(self._source.newer, self._known)
        except Exception as error:
            if self._failed_s <= self._seen_s:  # not: that they still cannot
                log.error("the API keys cannot be read: %s", getattr(error, "orig", None) or error)
            self._failed_s = self._clock.tick_s()
        else:
            self._seen_s = began_s

    async def aclose(self) -> None:
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=WAIT_S)
        self._source.close()


def access_for(settings: Settings, clock: Clock) -> Access:
    """The access that the settings ask for. Raises ``SettingsError`` as ``may_listen`` does."""
    may_listen(settings)
    guard = Guard(secret(settings.server.api_key_env))
    loopback = is_loopback(settings.server.host)
    source = SqlKeys(settings.database_url, settings.data_path)
    canonical = canonical_names(settings.models)
    return Access(source, guard, clock, loopback=loopback, canonical=canonical)


def may_listen(settings: Settings) -> None:
    """Raises ``SettingsError`` where others than this machine could reach a gateway that asks for
    no key: neither the settings name one, nor was one made with ``agentspec keys create``."""
    server: ServerSettings = settings.server
    try:
        guard_for(server)
    except SettingsError:
        if server.api_key_env is not None:
            raise
        keys = SqlKeys(settings.database_url, settings.data_path)
        try:
            if not keys.newer(None).any:
                raise
        finally:
            keys.close()
