"""Whether a request may run now: reserved before it is sent on, settled when its row is closed.

A key without limits costs nothing here. One with limits takes from slices that this process holds
(``limits_account.py``); only where a slice doesn't cover it, it waits for an exchange with the
store (``limits_pump.py``). Where the store can't be reached it is refused, not let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from agentspec.settings import ModelSettings, Settings
from agentspec.store.budgets import BUDGETS
from agentspec.store.cost import Price
from agentspec.store.database import connect
from agentspec.store.leases import Leases
from agentspec.store.pricer import Pricer
from agentspec.store.record import RequestRecord
from agentspec.wire.chat import ChatRequest
from agentspec.wire.errors import PermissionDenied

from . import limits_told
from .clock import Clock
from .identity import Identity
from .limits_account import Account
from .limits_estimate import Estimate, Prices, estimate
from .limits_pump import Pump, StoreAway


@dataclass(frozen=True, slots=True)
class Wanting:
    """A request before it runs. surface: the protocol's word, for the spelling of headers;
    body: its JSON fields."""

    surface: str
    request: ChatRequest
    body: Mapping[str, msgspec.Raw]
    model: ModelSettings


class Limits:
    """Reservations of this process's requests, by the request's id.

    metered: backends whose rows have a cost only where a price is known: all but our engine. A
    pool's price is by the hour, and other servers don't tell what of it a request took.
    """

    def __init__(
        self, pump: Pump, prices: Prices, clock: Clock, metered: frozenset[str] = frozenset()
    ):
        self._pump = pump
        self._metered = metered
        self._prices = prices
        self._clock = clock
        self._running: dict[str, tuple[Estimate, list[tuple[Account, int, int]]]] = {}
        """id -> its estimate, and of each limit (account, estimated amount, reserved)."""

    async def admit(self, id: str, identity: Identity, wanting: Wanting) -> dict[str, str]:
        """Reserve, and return the headers that tell what is left.

        Raises ``RateLimited``, ``BudgetExhausted``, ``StoreAway``; nothing is reserved then, nor
        when it is cancelled.
        """
        if not identity.limits:
            return {}
        writes = wanting.surface != "embeddings"
        price = partial(self._price, wanting)
        found = estimate(wanting.request, wanting.body, wanting.model, price, writes=writes)
        if found.nusd is None and not self._metered.isdisjoint(wanting.model.backends):
            _refuse_unpriced(identity, wanting.request.model)
        while True:
            now_ms, now_s = self._clock.now_ms(), self._clock.tick_s()
            parts = [
                (self._pump.account(limit, now_ms), found.amount(limit.kind))
                for limit in identity.limits
            ]
            lacking = [(a, amount) for a, amount in parts if not a.has(amount, now_s)]
            if not lacking:
                break
            for account, amount in lacking:
                if amount > account.limit.amount or now_s < account.refused_until_s:
                    raise self._refused(account, amount, wanting, parts, now_ms)
            for account, amount in lacking:
                account.needed += amount
            try:
                await self._pump.fill()
            except StoreAway:
                for account, amount in lacking:  # nobody waits for it any more
                    account.needed = max(0, account.needed - amount)
                raise
        taken = [(account, amount, account.take(amount)) for account, amount in parts]
        self._running[id] = (found, taken)
        if any(account.low() for account, _ in parts):
            self._pump.nudge()
        return limits_told.headers(wanting.surface, [a for a, _ in parts], now_ms)

    def _price(self, wanting: Wanting, in_tok: int) -> Price | None:
        name, now_ms = wanting.request.model, self._clock.now_ms()
        return self._prices.of(name, wanting.model, in_tok, now_ms)

    def _refused(
        self,
        account: Account,
        amount: int,
        wanting: Wanting,
        parts: list[tuple[Account, int]],
        now_ms: int,
    ) -> Exception:
        error = limits_told.refusal(account, amount, now_ms)
        told = limits_told.headers(wanting.surface, [a for a, _ in parts], now_ms)
        error.headers = told | getattr(error, "headers", {})
        return error

    def settle(self, record: RequestRecord) -> None:
        """Book what a request has used; for one that reserved nothing, nothing."""
        found, parts = self._running.pop(record.id, (None, ()))
        if found is None:
            return
        for account, amount, reserved in parts:
            account.settle(amount, reserved, found.used(account.limit.kind, record))

    async def aclose(self) -> None:
        await self._pump.aclose()


def limits_for(settings: Settings, pricer: Pricer, clock: Clock) -> Limits:
    """Limits that hold over all gateway processes on the settings' database."""

    def make() -> Leases:
        return Leases(connect(settings.database_url), clock.entropy(12).hex(), clock.now_ms)

    metered = frozenset(name for name, b in settings.backends.items() if b.kind != "engine")
    return Limits(
        Pump(make, clock), Prices(settings.models, pricer, settings.backends), clock, metered
    )


def _refuse_unpriced(identity: Identity, model: str) -> None:
    """A budget cannot hold over what has no price."""
    if any(limit.kind in BUDGETS for limit in identity.limits):
        raise PermissionDenied(
            f"No price is known for the model '{model}', so this API key, which has a budget, "
            "may not use it.",
            param="model",
            code="price_unknown",
        )
