"""Keys and projects with what is used of their limits: for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from .budgets import BUDGETS, CONCURRENCY, Limit, period
from .keys import KeyRecord, ProjectRecord, key_record, limits_of, printable, project_owner
from .keys_schema import api_key, limit_lease, project
from .leases import spent_by_ledger, used_of
from .money import NUSD_PER_USD

_NUSD_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Use:
    """A limit and its running period. used: told by the gateways; held: in their slices, in flight
    or kept ready."""

    limit: Limit
    used: int
    held: int

    @property
    def share(self) -> float:
        """Of the limit, with what is held; 1 for a limit of nothing."""
        return min(1.0, (self.used + self.held) / self.limit.amount) if self.limit.amount else 1.0

    def as_json(self) -> dict[str, Any]:
        unit = "_nusd" if self.limit.kind in BUDGETS else ""
        return {
            "kind": self.limit.kind,
            f"limit{unit}": self.limit.amount,
            f"used{unit}": self.used,
            f"held{unit}": self.held,
        }

    @property
    def told(self) -> str:
        """3 of 60, $1.20 of $50.00."""
        kind = self.limit.kind
        used = self.held if kind == CONCURRENCY else self.used
        return f"{amount_text(kind, used)} of {amount_text(kind, self.limit.amount)}"

    def text(self) -> str:
        return f"{self.limit.kind} {self.told}"


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key with its own limits, as they stand at ``now_ms``."""

    record: KeyRecord
    uses: tuple[Use, ...]
    now_ms: int

    @property
    def state(self) -> str:
        return self.record.state(self.now_ms)

    def as_json(self) -> dict[str, Any]:
        key = self.record
        return {
            "id": key.id,
            "name": key.name,
            "state": self.state,
            "project": key.project,
            "models": None if key.models is None else list(key.models),
            "cache_scope": key.scope,
            "operator": key.operator,
            "created_ms": key.created_ms,
            "expires_ms": key.expires_ms,
            "revoked_ms": key.revoked_ms,
            "limits": [use.as_json() for use in self.uses],
        }

    def line(self) -> str:
        key = self.record
        limits = ", ".join(use.text() for use in self.uses) or "no limits"
        project = f"  project {key.project}" if key.project else ""
        return f"{key.id}  {self.state:8}  {printable(f'{key.name}{project}')}  {limits}"

    def text(self) -> str:
        key = self.record
        lines = [
            f"{key.id}  {printable(key.name)}",
            f"  state        {self.state}",
            f"  project      {printable(key.project or '-')}",
            f"  models       {'all' if key.models is None else printable(', '.join(key.models))}",
            f"  cache scope  {printable(key.scope)}",
            f"  dashboard    {'yes' if key.operator else 'no'}",
            f"  created      {_day(key.created_ms)}",
            f"  expires      {_day(key.expires_ms)}",
        ]
        return "\n".join([*lines, *(f"  {use.text()}" for use in self.uses)])


@dataclass(frozen=True, slots=True)
class ProjectUse:
    record: ProjectRecord
    uses: tuple[Use, ...]
    keys: int

    def as_json(self) -> dict[str, Any]:
        limits = [use.as_json() for use in self.uses]
        return {"name": self.record.name, "keys": self.keys, "limits": limits}

    def text(self) -> str:
        limits = ", ".join(use.text() for use in self.uses) or "no limits"
        keys = f"{self.keys} key{'' if self.keys == 1 else 's'}"
        return f"{printable(self.record.name)}  {keys}  {limits}"


@dataclass(frozen=True, slots=True)
class KeysOverview:
    keys: tuple[KeyUse, ...]
    projects: tuple[ProjectUse, ...]


def overview(engine: Engine, now_ms: int) -> KeysOverview:
    """Every key and project, the oldest first. Raises ``SQLAlchemyError``."""
    with engine.connect() as connection:
        return keys_and_projects(connection, now_ms)


def keys_and_projects(connection: Connection, now_ms: int) -> KeysOverview:
    """As ``overview``, of one snapshot."""
    limits = limits_of(connection)
    records = [
        key_record(row, limits)
        for row in connection.execute(select(api_key).order_by(api_key.c.created_ms))
    ]
    keys = [KeyUse(key, _uses(connection, key.limits, now_ms), now_ms) for key in records]
    projects = []
    for row in connection.execute(select(project).order_by(project.c.name)).all():
        mine = limits.get(project_owner(row.name), ())
        count = sum(key.project == row.name for key in records)
        record = ProjectRecord(row.name, row.created_ms, mine)
        projects.append(ProjectUse(record, _uses(connection, mine, now_ms), count))
    return KeysOverview(tuple(keys), tuple(projects))


def _uses(connection: Connection, limits: Sequence[Limit], now_ms: int) -> tuple[Use, ...]:
    found = []
    for limit in limits:
        start_ms = period(limit.kind, now_ms).start_ms
        place = limit.owner, limit.kind, start_ms
        used = used_of(connection, place)
        if used is None and limit.kind in BUDGETS:
            used = spent_by_ledger(connection, place)  # as the first gateway that asks will see it
        held = select(func.sum(limit_lease.c.amount)).where(
            limit_lease.c.owner == limit.owner,
            limit_lease.c.kind == limit.kind,
            limit_lease.c.start_ms == start_ms,
            limit_lease.c.expires_ms > now_ms,
        )
        found.append(Use(limit, used or 0, int(connection.execute(held).scalar() or 0)))
    return tuple(found)


def amount_text(kind: str, amount: int) -> str:
    """An amount in its kind's unit: 60, $12.50; less than a dollar with three digits that count,
    $0.000125."""
    if kind not in BUDGETS:
        return f"{amount:,}"
    digits = 2
    if 0 < amount < NUSD_PER_USD:
        digits = max(digits, _NUSD_DIGITS + 3 - len(str(amount)))
    usd = f"{Decimal(amount) / NUSD_PER_USD:,.{min(digits, _NUSD_DIGITS)}f}"
    whole, _, part = usd.partition(".")
    return f"${whole}.{part[:2]}{part[2:].rstrip('0')}"


def _day(ts_ms: int | None) -> str:
    if ts_ms is None:
        return "-"
    return f"{datetime.fromtimestamp(ts_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
