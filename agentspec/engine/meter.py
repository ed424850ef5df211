"""Busy time, split over requests so that their sum is the engine's: exact integer microseconds.

What can be seen per sequence is measured (draft, grammar); the rest of a step's wall time is
divided by the rows that each sequence had in the forward pass, into prefill and decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentspec.wire.extension import BusyTime

if TYPE_CHECKING:
    from torch import Tensor

    from .constrain import Constraint

Clock = Callable[[], int]
"""Nanoseconds of a monotonic clock."""


@dataclass(slots=True)
class Bill:
    """The time of one sequence: ``busy`` in all, and what this step adds, not yet settled."""

    busy: BusyTime = field(default_factory=BusyTime)
    draft_ns: int = 0
    grammar_ns: int = 0
    prefill_rows: int = 0
    decode_rows: int = 0

    @property
    def open(self) -> bool:
        """Whole microseconds or rows of it are not settled yet."""
        measured = self.draft_ns >= 1000 or self.grammar_ns >= 1000
        return measured or self.prefill_rows > 0 or self.decode_rows > 0


class Meter:
    """Measures steps and settles them on bills. ``busy`` is the engine's total."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.busy = BusyTime()
        self._started_ns = 0
        self._carry_ns = 0

    def start(self) -> None:
        """A step begins."""
        self._started_ns = self.clock()

    def settle(self, bills: Seq[Bill]) -> None:
        """The step ends: divide its time over ``bills``, whose open entries are cleared.

        Without bills nobody had work and the time is idle. The fraction of a microsecond that is
        left is carried to the next step.
        """
        if not bills:
            return
        elapsed_ns = self.clock() - self._started_ns + self._carry_ns
        rest_us, self._carry_ns = divmod(max(elapsed_ns, 0), 1000)
        for bill in bills:
            rest_us -= self._charge_measured(bill, rest_us)
        for (bill, kind, _), share in zip(*_shares(bills, rest_us), strict=True):
            self._add(bill, kind, share)
        for bill in bills:
            bill.prefill_rows = bill.decode_rows = 0

    def _charge_measured(self, bill: Bill, most_us: int) -> int:
        """Charge whole microseconds of the measured entries; their fractions stay open."""
        draft_us = min(bill.draft_ns // 1000, most_us)
        grammar_us = min(bill.grammar_ns // 1000, most_us - draft_us)
        bill.draft_ns -= draft_us * 1000
        bill.grammar_ns -= grammar_us * 1000
        self._add(bill, "draft", draft_us)
        self._add(bill, "grammar", grammar_us)
        return draft_us + grammar_us

    def _add(self, bill: Bill, kind: str, us: int) -> None:
        for total in (bill.busy, self.busy):
            setattr(total, kind, getattr(total, kind) + us)

    @contextmanager
    def drafting(self, bills: Seq[Bill]) -> Iterator[None]:
        """Charge the block to ``bills`` in equal parts as draft, less the grammar time within."""
        grammar_ns = sum(bill.grammar_ns for bill in bills)
        started_ns = self.clock()
        try:
            yield
        finally:
            grammar_ns = sum(bill.grammar_ns for bill in bills) - grammar_ns
            spent_ns = max(self.clock() - started_ns - grammar_ns, 0)
            for bill, share in zip(bills, split(spent_ns, [1] * len(bills)), strict=True):
                bill.draft_ns += share


def split(total: int, weights: Seq[int]) -> list[int]:
    """``total`` in whole parts proportional to ``weights`` (positive sum), which add up to it."""
    parts, given, seen, whole = [], 0, 0, sum(weights)
    for weight in weights:
        seen += weight
        upto = total * seen // whole
        parts.append(upto - given)
        given = upto
    return parts


def _shares(bills: Seq[Bill], us: int) -> tuple[list[tuple[Bill, str, int]], list[int]]:
    """``us`` by rows; equally where no bill has any (a step that only ended sequences)."""
    entries = [
        (bill, kind, rows)
        for bill in bills
        for kind, rows in (("prefill", bill.prefill_rows), ("decode", bill.decode_rows))
        if rows
    ] or [(bill, "decode", 1) for bill in bills]
    return entries, split(us, [rows for _, _, rows in entries])


class MeteredConstraint:
    """A constraint whose calls are charged to a bill as grammar time; clones are as well."""

    def __init__(self, inner: Constraint, bill: Bill, clock: Clock):
        self._inner = inner
        self._bill = bill
        self._clock = clock

    @contextmanager
    def _timed(self) -> Iterator[Constraint]:
        started_ns = self._clock()
        try:
            yield self._inner
        finally:
            self._bill.grammar_ns += self._clock() - started_ns

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """rows: [len(draft)+1, W] int32, W = ceil(vocabulary / 32); see ``Constraint.masks``."""
        with self._timed() as inner:
            return inner.masks(draft, rows)

    def needs_mask(self) -> bool:
        with self._timed() as inner:
            return inner.needs_mask()

    def allows(self, token: int) -> bool:
        with self._timed() as inner:
            return inner.allows(token)

    def forced(self, limit: int) -> list[int]:
        with self._timed() as inner:
            return inner.forced(limit)

    def accept(self, tokens: Seq[int]) -> None:
        with self._timed() as inner:
            inner.accept(tokens)

    def rollback(self, count: int) -> None:
        with self._timed() as inner:
            inner.rollback(count)

    def viable(self) -> bool:
        with self._timed() as inner:
            return inner.viable()

    def ban(self, token: int) -> None:
        self._inner.ban(token)

    def clone(self) -> MeteredConstraint:
        with self._timed() as inner:
            return MeteredConstraint(inner.clone(), self._bill, self._clock)

    @property
    def in_grammar(self) -> bool:
        return self._inner.in_grammar

    @property
    def may_stop(self) -> bool:
        with self._timed() as inner:
            return inner.may_stop

    @property
    def must_stop(self) -> bool:
        with self._timed() as inner:
            return inner.must_stop

    def closing(self, limit: int) -> list[int] | None:
        with self._timed() as inner:
            return inner.closing(limit)
