"""Dated price versions: entering one, and which price of a model holds at a time.

Of all versions that price a model and are valid by then, the one valid latest holds; of equals the
one entered last.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, delete, func, insert, select, update

from .cost import Price
from .dates import EXPECTED, is_date
from .errors import StoreError
from .price_schema import price, price_version
from .schema import request

_PRICED = [f.name for f in fields(Price)]


class PriceError(StoreError):
    """A price that cannot be entered, or is not there."""

    type = "invalid_request_error"
    code = "invalid_price"


@dataclass(frozen=True, slots=True)
class Version:
    """Prices that one source gave at one time. models: how many it prices."""

    id: int
    source: str
    valid_from_ms: int
    entered_ms: int
    models: int


@dataclass(frozen=True, slots=True)
class Dated:
    """One price of a model, with the version it comes from."""

    version_id: int
    source: str
    valid_from_ms: int
    model: str
    price: Price


def add_version(
    connection: Connection,
    source: str,
    valid_from_ms: int,
    prices: Mapping[str, Sequence[Price]],
    *,
    entered_ms: int | None = None,
) -> int | None:
    """Enter a version and return its id; None where this source has one of that date already.

    prices: by model; several of one model differ in ``above_tok``. Raises ``PriceError`` for a
    version without any price, or of no such date (``dates``).
    """
    if not prices:
        raise PriceError(f"'{source}' gives no price")
    if not is_date(valid_from_ms):
        raise PriceError(f"a price holds from {EXPECTED}, not from {valid_from_ms} ms")
    same = (price_version.c.source == source, price_version.c.valid_from_ms == valid_from_ms)
    if connection.execute(select(price_version.c.id).where(*same)).first() is not None:
        return None
    last = last_version(connection)
    version = {
        "id": last + 1,
        "source": source,
        "valid_from_ms": valid_from_ms,
        "entered_ms": time.time_ns() // 1_000_000 if entered_ms is None else entered_ms,
    }
    connection.execute(insert(price_version), version)
    rows = [
        {"version_id": last + 1, "model": model, **asdict(one)}
        for model, several in prices.items()
        for one in several
    ]
    connection.execute(insert(price), rows)
    return last + 1


def withdraw(connection: Connection, version_id: int) -> Version:
    """Take a version's prices out, entered by mistake, and return what it was. Its number stays
    taken. Raises ``PriceError`` where there is no such version with prices, or a request was billed
    by it: those are told by it for good."""
    found = next((v for v in versions(connection) if v.id == version_id and v.models), None)
    if found is None:
        raise PriceError(f"there is no price version {version_id}, or it was withdrawn already")
    billed = select(request.c.id).where(
        request.c.ts_ms >= found.valid_from_ms, request.c.price_version_id == version_id
    )
    if connection.execute(billed.limit(1)).first() is not None:
        raise PriceError(
            f"requests were billed by version {version_id}, so it stays; a price set now with the "
            "same --valid-from and another --source goes before it"
        )
    connection.execute(delete(price).where(price.c.version_id == version_id))
    source = f"withdrawn #{version_id}: {found.source}"
    named = update(price_version).where(price_version.c.id == version_id)
    connection.execute(named.values(source=source))
    return found


def versions(connection: Connection) -> list[Version]:
    """All versions, the one valid latest last."""
    c = price_version.c
    models = (
        select(func.count(func.distinct(price.c.model)))
        .where(price.c.version_id == c.id)
        .scalar_subquery()
    )
    query = select(*c, models.label("models")).order_by(c.valid_from_ms, c.id)
    return [Version(**row._asdict()) for row in connection.execute(query)]


def state(connection: Connection) -> tuple[int, int]:
    """Changes with every version that is entered or withdrawn."""
    prices = connection.scalar(select(func.count()).select_from(price))
    return last_version(connection), prices or 0


def last_version(connection: Connection) -> int:
    """The id of the version entered last; 0 before the first."""
    return connection.execute(select(func.coalesce(func.max(price_version.c.id), 0))).scalar_one()


def dated(
    connection: Connection,
    *,
    models: Iterable[str] | None = None,
    version_id: int | None = None,
) -> list[Dated]:
    """Prices of some models, of a version, or all; by model, what holds last coming last."""
    p, v = price.c, price_version.c
    query = (
        select(*p, v.source, v.valid_from_ms)
        .join(price_version, v.id == p.version_id)
        .order_by(p.model, v.valid_from_ms, v.id, p.above_tok)
    )
    if models is not None:
        query = query.where(p.model.in_(sorted(models)))
    if version_id is not None:
        query = query.where(p.version_id == version_id)
    return [
        Dated(
            row["version_id"],
            row["source"],
            row["valid_from_ms"],
            row["model"],
            Price(**{name: row[name] for name in _PRICED}),
        )
        for row in connection.execute(query).mappings()
    ]
