"""Slices of limits, leased to gateway processes: how a limit holds over several of them.

A process takes from its own slice without asking anybody. What was used, what all slices hold, and
what may still be given out always add up to the limit, and one transaction moves between them:

    limit = used + the sum of leases + remaining

The usage row's lock serialises all processes on one limit. A lease that isn't renewed ends, and its
amount is free again: a killed process takes nothing with it. What that one had spent of a budget
without having said so is found in the ledger, to which its journal is drained meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, func, select, tuple_, update
from sqlalchemy.exc import DataError

from .budgets import BUDGETS, MOST, RPM, TPM, bounded, period
from .database import insert_new, upsert
from .keys_schema import api_key, limit_lease, limit_usage
from .schema import request

LEASE_MS = 10_000
"""How long a slice is good without being renewed."""

KEEP_MS = 3_600_000
"""How long the usage of past minutes is kept."""

SPARE_SHARE = 8
"""Beyond what is needed now, a process gets at most this part of what remains: near its end a limit
isn't scattered over slices."""

Place = tuple[str, str, int]
"""(owner, kind, start of the period): one row of ``limit_usage``."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a process tells of one limit, and wants of it.

    spent: used since it last told; held: what its slice holds now, that left out; need: wanted at
    once; spare: wanted beside, if there is plenty.
    """

    place: Place
    limit: int
    spent: int = 0
    held: int = 0
    need: int = 0
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """granted: added to the slice; remaining: what any process might still get, after that."""

    granted: int
    remaining: int


class Leases:
    """One process's side of the leases. holder: its name, unlike any other's. now_ms: wall clock,
    of which those of all machines must agree within a second or two."""

    def __init__(
        self,
        engine: Engine,
        holder: str,
        now_ms: Callable[[], int],
        *,
        lease_ms: int = LEASE_MS,
    ):
        self._engine = engine
        self._holder = holder
        self._now_ms = now_ms
        self.lease_ms = lease_ms
        self._prune_at_ms = 0

    def exchange(self, asks: Sequence[Ask]) -> dict[Place, Grant]:
        """Tell and ask, in one transaction. Blocks; raises ``SQLAlchemyError``, nothing done.

        Without a grant stay those whose own values the database can't hold: nothing is told of
        these, and the others are not held up.
        """
        try:
            return self._exchange(asks)
        except (DataError, OverflowError, ValueError):
            if len(asks) == 1:
                return {}
        found: dict[Place, Grant] = {}
        for ask in asks:
            found |= self.exchange([ask])
        return found

    def _exchange(self, asks: Sequence[Ask]) -> dict[Place, Grant]:
        asks = sorted(asks, key=lambda ask: ask.place)
        if not asks:
            return {}
        places = [ask.place for ask in asks]
        with self._engine.begin() as connection:
            used = self._lock_usage(connection, places)
            now_ms = self._now_ms()
            others = self._others(connection, places)
            ended = [row for row in others if row.expires_ms <= now_ms]
            for ask in asks:
                used[ask.place] = min(used[ask.place] + bounded(ask.spent), MOST)
            self._end(connection, ended, used)
            leased = dict.fromkeys(places, 0)
            for row in others:
                if row.expires_ms > now_ms:
                    leased[_place(row)] += row.amount
            grants = {a.place: _grant(a, used[a.place], leased[a.place]) for a in asks}
            self._write(connection, asks, used, grants, now_ms)
            self._prune(connection, now_ms)
        return grants

    def _lock_usage(self, connection: Connection, places: list[Place]) -> dict[Place, int]:
        """The usage rows, made where there are none, locked in one order by all processes.

        A budget begins with what its period's rows in the ledger cost: these ran before it was set.
        """
        keys = limit_usage.c.owner, limit_usage.c.kind, limit_usage.c.start_ms
        query = select(limit_usage).where(tuple_(*keys).in_(places)).order_by(*keys)
        known = {_place(row) for row in connection.execute(query)}
        rows = [
            {"owner": place[0], "kind": place[1], "start_ms": place[2]}
            | {"used": spent_by_ledger(connection, place) if place[1] in BUDGETS else 0}
            for place in places
            if place not in known
        ]
        if rows:
            connection.execute(insert_new(self._engine, limit_usage), rows)
        found = {_place(row): row.used for row in connection.execute(query.with_for_update())}
        # A minute long past may be pruned by another process at this moment.
        return dict.fromkeys(places, 0) | found

    def _others(self, connection: Connection, places: list[Place]) -> Sequence[Row[Any]]:
        keys = limit_lease.c.owner, limit_lease.c.kind, limit_lease.c.start_ms
        query = select(limit_lease).where(
            tuple_(*keys).in_(places), limit_lease.c.holder != self._holder
        )
        return connection.execute(query).all()

    def _end(
        self, connection: Connection, ended: Sequence[Row[Any]], used: dict[Place, int]
    ) -> None:
        """Take leases back whose holders are gone, and book what those had spent of budgets."""
        for row in ended:
            place = _place(row)
            if row.kind in BUDGETS:
                used[place] = max(used[place], spent_by_ledger(connection, place))
            connection.execute(
                delete(limit_lease).where(
                    limit_lease.c.owner == row.owner,
                    limit_lease.c.kind == row.kind,
                    limit_lease.c.start_ms == row.start_ms,
                    limit_lease.c.holder == row.holder,
                )
            )

    def _write(
        self,
        connection: Connection,
        asks: Sequence[Ask],
        used: dict[Place, int],
        grants: dict[Place, Grant],
        now_ms: int,
    ) -> None:
        usage, leases = [], []
        for ask in asks:
            owner, kind, start_ms = ask.place
            row = {"owner": owner, "kind": kind, "start_ms": start_ms}
            usage.append(row | {"used": used[ask.place]})
            amount = max(0, ask.held + grants[ask.place].granted)
            leases.append(
                row
                | {"holder": self._holder, "amount": amount, "expires_ms": now_ms + self.lease_ms}
            )
        connection.execute(upsert(self._engine, limit_usage), usage)
        connection.execute(upsert(self._engine, limit_lease), leases)

    def _prune(self, connection: Connection, now_ms: int) -> None:
        """Now and then: usage of minutes long past, leases of nothing, leases on those minutes."""
        if now_ms < self._prune_at_ms:
            return
        self._prune_at_ms = now_ms + KEEP_MS // 60
        for table in (limit_usage, limit_lease):
            past = table.c.kind.in_((RPM, TPM)) & (table.c.start_ms < now_ms - KEEP_MS)
            connection.execute(delete(table).where(past))
        mine_not = limit_lease.c.holder != self._holder
        empty = (limit_lease.c.amount == 0) & (limit_lease.c.expires_ms < now_ms - KEEP_MS)
        connection.execute(delete(limit_lease).where(mine_not, empty))

    def leave(self) -> None:
        """Give every lease of this process back. What was spent must have been told before."""
        with self._engine.begin() as connection:
            connection.execute(delete(limit_lease).where(limit_lease.c.holder == self._holder))

    def close(self) -> None:
        self._engine.dispose()


def _grant(ask: Ask, used: int, leased: int) -> Grant:
    remaining = max(0, ask.limit - used - leased - max(0, ask.held))
    needed = min(max(0, ask.need), remaining)
    spare = min(max(0, ask.spare), (remaining - needed) // SPARE_SHARE)
    return Grant(needed + spare, remaining - needed - spare)


def _place(row: Row[Any]) -> Place:
    return row.owner, row.kind, row.start_ms


def spent_by_ledger(connection: Connection, place: Place) -> int:
    """Nano-USD of the owner's rows in the ledger since the period began."""
    owner, _, start_ms = place
    kind, _, name = owner.partition(":")
    whose = request.c.key_id == name
    if kind == "project":
        whose = request.c.key_id.in_(select(api_key.c.id).where(api_key.c.project == name))
    # SQLite's sum of whole numbers fails beyond 64 bits; a float near there is exact enough.
    cost = request.c.cost_nusd
    total = func.total(cost) if connection.dialect.name == "sqlite" else func.sum(cost)
    query = select(total).where(whose, request.c.ts_ms >= start_ms)
    return bounded(int(connection.execute(query).scalar() or 0))


def used_of(connection: Connection, place: Place) -> int | None:
    """What is booked as used; None where nobody has asked in that period yet."""
    keys = limit_usage.c.owner, limit_usage.c.kind, limit_usage.c.start_ms
    query = select(limit_usage.c.used).where(tuple_(*keys) == tuple_(*place))
    return connection.execute(query).scalar()


def catch_up(connection: Connection, owner: str, kind: str, now_ms: int) -> None:
    """For a budget that is set again: book what was spent while there was none."""
    place = owner, kind, period(kind, now_ms).start_ms
    used = used_of(connection, place)
    if used is None:
        return
    spent = max(used, spent_by_ledger(connection, place))
    keys = limit_usage.c.owner, limit_usage.c.kind, limit_usage.c.start_ms
    change = update(limit_usage).where(tuple_(*keys) == tuple_(*place))
    connection.execute(change.values(used=spent))
