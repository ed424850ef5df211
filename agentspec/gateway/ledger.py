"""The ledger as the gateway sees it: two calls that never fail a request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from agentspec.store.errors import JournalError
from agentspec.store.record import Note, OpenRecord, RequestRecord

from .metrics import Metrics

log = logging.getLogger(__name__)


class JournalLike(Protocol):
    """What ``store.journal.Journal`` offers. Both calls are one write(2); they raise
    ``JournalError``."""

    def open(self, record: OpenRecord) -> None: ...

    def close(self, record: RequestRecord, *notes: Note) -> None: ...


class Ledger:
    """Records requests in the journal and in the metrics. A journal that fails is counted and
    logged; the answer goes out all the same."""

    def __init__(
        self,
        journal: JournalLike,
        metrics: Metrics,
        pricer: Callable[[RequestRecord], None],
        settle: Sequence[Callable[[RequestRecord], None]] = (),
    ):
        """pricer: fills in a finished record's cost. settle: are told of it then."""
        self._settle = settle
        self._journal = journal
        self._price = pricer
        self._metrics = metrics

    def open(self, record: OpenRecord) -> None:
        self._metrics.in_flight.inc()
        self._write(lambda: self._journal.open(record), record.id)

    def close(self, record: RequestRecord, notes: Sequence[Note] = ()) -> None:
        """Call before the answer's last byte. notes: what is kept beside the row."""
        self._metrics.in_flight.dec()
        self.refuse(record, notes)

    def refuse(self, record: RequestRecord, notes: Sequence[Note] = ()) -> None:
        """Record a request that was never opened: it was refused at once.

        Its row comes before all that may go wrong; whatever does is logged, and harms nobody.
        """
        self._guard("priced", lambda: self._price(record), record.id)
        self._write(lambda: self._journal.close(record, *notes), record.id)
        for settle in self._settle:
            self._guard("settled", lambda told=settle: told(record), record.id)
        self._guard("counted", lambda: self._metrics.observe(record), record.id)

    def _guard(self, what: str, call: Callable[[], None], request_id: str) -> None:
        try:
            call()
        except Exception:
            log.exception("request %s could not be %s", request_id, what)

    def _write(self, call: Callable[[], None], request_id: str) -> None:
        try:
            call()
        except (JournalError, OSError) as error:
            self._metrics.journal_failures.inc()
            log.error("request %s is missing in the ledger: %s", request_id, error)
