"""What a finished request cost, frozen into its record: no database is asked while it waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from agentspec.settings import Settings

from .book import PriceBook, names
from .cost import (
    BY_BUSY_TIME,
    BY_SETTINGS,
    BY_VERSION,
    FREE,
    UNKNOWN,
    Cost,
    Price,
    cost,
    from_settings,
)
from .database import connect_reader
from .errors import StoreError
from .migrate import require_current
from .money import half_even
from .pool import busy_nusd_per_us
from .prices import dated, state
from .record import RequestRecord
from .rollup import LARGEST

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the price table is asked for its newest version: a price entered now holds for requests
that end this much later, and the time that reading it takes."""
_FIRST_READ_S = 5.0


class Pricer:
    """Prices records: by the settings of their backend, else of their model; at a self-hosted
    backend with a pool by the engine's busy time; at a commercial one by the price table. Else the
    cost stays unknown, as it does where a request was sent on and no tokens were told.
    """

    def __init__(self, settings: Settings):
        self._url = settings.database_url
        self._listed = {name: from_settings(m.price) for name, m in settings.models.items()}
        self._at = {name: from_settings(b.price) for name, b in settings.backends.items()}
        self._rates = {name: busy_nusd_per_us(pool) for name, pool in settings.pools.items()}
        self._vendors = settings.vendors
        self._names = {
            name: (model.upstream_name or name, model.upstream_names)
            for name, model in settings.models.items()
        }
        self._wanted = {
            wanted
            for name, model in settings.models.items()
            if self._listed[name] is None and self._vendors.intersection(model.backends)
            for known in (model.upstream_name or name, *model.upstream_names.values())
            for wanted in names(known)
        }
        self._read_state: tuple[int, int] | None = None
        self._away = False
        self.book = PriceBook()

    def __call__(self, record: RequestRecord) -> None:
        """Fill in the record's cost, and by what it was computed."""
        found, failed = self._cost(record), self._failed(record)
        parts = (found.fresh_nusd, found.cached_nusd, found.out_nusd, failed)
        if sum(part or 0 for part in parts) > LARGEST:
            # Some $280,000 for one request: its counts are absurd. Cut, parts would not add up.
            found, record.cost_formula, record.price_version_id = UNKNOWN, 0, None
            failed = None
        record.cost_fresh_nusd, record.cost_cached_nusd = found.fresh_nusd, found.cached_nusd
        record.cost_out_nusd, record.cost_failed_nusd = found.out_nusd, failed
        record.cost_nusd = found.total_nusd
        if record.cost_nusd is not None:
            record.cost_nusd = None if failed is None else record.cost_nusd + failed

    def _failed(self, record: RequestRecord) -> int | None:
        """What calls before the last one were billed; None where that isn't known. The time of a
        self-hosted backend is in its pool's bill, whatever became of it."""
        total = 0
        for one in failed_calls(record):
            name, tokens = one["backend"], one.get("tokens")
            if name in self._rates or not (tokens or one.get("unclear")):
                continue
            upstream, elsewhere = self._names.get(record.model, (record.model, {}))
            asked = RequestRecord(
                record.id, record.ts_ms, model=record.model, backend=name, **(tokens or {})
            )
            asked.upstream_model = elsewhere.get(name, upstream)
            listed = self._listed_of(asked)
            if listed is None and name not in self._vendors:
                continue
            if not tokens:
                return None
            known = of_record(listed, asked) if listed is not None else self._at_vendor(asked)
            if known.total_nusd is None:
                return None
            total += known.total_nusd
        return total

    def _cost(self, record: RequestRecord) -> Cost:
        if not record.backend:
            return FREE  # it ran nowhere
        told_busy = record.backend in self._rates and busy_us(record)
        if record.token_source == "none" and not told_busy:
            # It was sent on, and nobody told what it took: 0 only where it was turned away.
            return FREE if record.cost_nusd == 0 else UNKNOWN
        listed = self._listed_of(record)
        if listed is not None:
            record.cost_formula = BY_SETTINGS
            return of_record(listed, record)
        if record.backend in self._vendors:
            return self._at_vendor(record)
        return self._busy(record) if record.backend in self._rates else UNKNOWN

    def _listed_of(self, record: RequestRecord) -> Price | None:
        return self._at.get(record.backend) or self._listed.get(record.model)

    def _at_vendor(self, record: RequestRecord) -> Cost:
        found = self.book.at(record.upstream_model, record.ts_ms, record.in_tok)
        if found is None:
            return UNKNOWN
        record.cost_formula = BY_VERSION
        record.price_version_id, price = found
        return of_record(price, record)

    def _busy(self, record: RequestRecord) -> Cost:
        """Its busy time at the pool's price; idle time is the pool's, and in the report."""
        generating = busy_us(record) - record.busy_prefill_us
        if record.out_tok and not busy_us(record):
            return UNKNOWN  # a backend that does not tell
        record.cost_formula = BY_BUSY_TIME
        rate = self._rates[record.backend]
        return Cost(half_even(record.busy_prefill_us * rate), 0, half_even(generating * rate))

    def last_look(self, engine: Engine, records: Iterable[RequestRecord]) -> None:
        """Price those again whose cost isn't known, by the prices that are there now: before they
        become rows, which are never changed. Logs what goes wrong."""
        looked = False
        for record in records:
            if record.cost_nusd is not None:
                continue
            try:
                if self._sold(record):
                    if not looked:
                        self.refresh(engine)
                        looked = True
                    self(record)
            except Exception:
                log.exception("request %s could not be priced", record.id)

    def _sold(self, record: RequestRecord) -> bool:
        """Whether a vendor was asked, and somebody told for how many tokens."""
        told = record.token_source != "none" or any(
            one.get("tokens") for one in failed_calls(record)
        )
        asked = [record.backend, *(one.get("backend") for one in failed_calls(record))]
        return told and not self._vendors.isdisjoint(map(str, asked))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the book as the price table is, from a thread of its own; waits for the first
        reading, within reason. Nothing is read where no model needs it."""
        if not self._wanted:
            yield
            return
        done, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._follow, args=(done, stop), name="prices")
        thread.daemon = True
        thread.start()
        done.wait(_FIRST_READ_S)
        try:
            yield
        finally:
            stop.set()

    def _follow(self, done: threading.Event, stop: threading.Event) -> None:
        engine = connect_reader(self._url)
        try:
            while not stop.is_set():
                self.refresh(engine)
                done.set()
                stop.wait(LOOK_S)
        finally:
            engine.dispose()

    def refresh(self, engine: Engine) -> None:
        """Read the book again if versions have changed. Logs what the database cannot do."""
        try:
            if self._read_state is None:
                require_current(engine)
            with engine.connect() as connection:
                newest = state(connection)
                if newest != self._read_state:
                    self.book = PriceBook(dated(connection, models=self._wanted))
                    self._read_state = newest
            self._away = False
        except (SQLAlchemyError, StoreError) as error:
            if not self._away:
                log.warning("prices cannot be read, trying again: %s", error)
            self._away = True


def failed_calls(record: RequestRecord) -> list[dict[str, Any]]:
    """The calls of a request before its last one, as its decision tells of them."""
    decision: Any = record.decision
    if isinstance(decision, msgspec.Raw):  # of an ``EndedRecord``
        decision = msgspec.json.decode(decision)
    told = decision.get("attempts")
    calls = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return calls[:-1]


def busy_us(record: RequestRecord) -> int:
    """What the request kept its backend busy, as far as it told."""
    return (
        record.busy_prefill_us
        + record.busy_decode_us
        + record.busy_draft_us
        + record.busy_grammar_us
    )


def of_record(price: Price, record: RequestRecord) -> Cost:
    """The cost of a request at any price, whatever was frozen in it."""
    return cost(
        price,
        in_tok=record.in_tok,
        cached_tok=record.cached_tok,
        out_tok=record.out_tok,
        reason_tok=record.reason_tok,
        cache_write_tok=record.cache_write_tok or 0,
        cache_write_1h_tok=record.cache_write_1h_tok or 0,
    )
