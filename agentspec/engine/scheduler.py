"""Who runs, and how many rows each sequence gets in a step. Numbers only, no tensors.

Of those that wait, the highest priority comes first, then the tenant that was served least
(``fairness.py``), then who came first. Interactive requests (priority 0 or more) take the place of
a batch one (negative) when all are taken. Among those that run, rows and pages go by
``Sequence.rank``: those that decode get their rows first, those that still compute their prompt
share what is left of ``step_tokens``, and a part of it is kept for drafts. When pages run out, the
last in rank gives its pages back and waits again.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from agentspec.wire.errors import Overloaded

from .fairness import FairTurns
from .slot import Slot

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings

    from .cache import PagePool
    from .meter import Clock
    from .sequence import Sequence

_ENDS_KEPT = 16
_INTERACTIVE_PART = 4
"""Batch requests leave one in so many places of the queue free."""
_RETRY_MOST_S = 60


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank


def _serve(sequences: Iterable[Sequence], rows: int) -> list[Slot]:
    """Slots with the pending rows of each in order, until ``rows`` are used up."""
    slots = []
    for sequence in sequences:
        if rows == 0:
            break
        slots.append(Slot(sequence, min(sequence.pending, rows)))
        rows -= slots[-1].rows
    return slots


class Scheduler:
    """The waiting queue, the running set and the row budget over one page pool.

    prompt_rows: the most rows of prompts beside so many of those that decode; None: what fits.
    """

    def __init__(self, pool: PagePool, settings: EngineSettings, clock: Clock):
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._step = 0
        self._turns = FairTurns()
        self._evicted: list[Sequence] = []
        self._reading: int | None = None
        self._ended: deque[float] = deque(maxlen=_ENDS_KEPT)
        self.prompt_rows: Callable[[int], int] | None = None
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def enqueue(self, sequence: Sequence) -> None:
        """Raises ``Overloaded`` when ``max_waiting`` sequences wait already; batch requests leave a
        quarter of the queue to interactive ones."""
        if len(self.waiting) >= self._queue_for(sequence):
            full = Overloaded(
                f"The engine's queue is full ({self._settings.max_waiting} requests wait)."
            )
            full.headers = {"retry-after": str(self.retry_after_s())}
            raise full
        insort(self.waiting, sequence, key=_rank)
        self._turns.arrived(sequence)

    def _queue_for(self, sequence: Sequence) -> int:
        """The most that wait when it comes."""
        most = self._settings.max_waiting
        return most if sequence.request.priority >= 0 else most - most // _INTERACTIVE_PART

    def retry_after_s(self) -> int:
        """When a place in the queue should be free, by the pace at which requests ended lately."""
        if len(self._ended) < 2:
            return 1
        span_s = self._clock() / 1e9 - self._ended[0]
        return max(1, min(_RETRY_MOST_S, math.ceil(span_s / (len(self._ended) - 1))))

    def candidate(self) -> Sequence | None:
        """Whose turn it is of those that wait, if there is a place for it.

        No more run than a pass has rows: else decoding would leave none to a prompt.
        """
        # One that gave its place up in this step is told of it first (``plan``).
        waiting = [s for s in self.waiting if s not in self._evicted]
        if not waiting:
            return None
        places = min(self._settings.max_sequences, self._settings.step_tokens)
        chosen = self._turns.next(waiting)
        if len(self.running) >= places and not self._evict_for(chosen):
            return None
        return chosen

    def _evict_for(self, sequence: Sequence) -> bool:
        """Make the last batch request wait again for an interactive one."""
        last = self.running[-1]
        if sequence.request.priority < 0 or last.request.priority >= 0 or last.retired:
            return False
        self._preempt(last)
        self._evicted.append(last)
        return True

    def _room_for(self, sequence: Sequence, missing: int) -> bool:
        """Whether so many pages are there beside one for each that runs; an interactive request
        takes those of batch ones, where they are enough."""
        pool = self._pool
        batch = [s for s in self.running if s.request.priority < 0]
        theirs = sum(len(s.table.pages) for s in batch) + len(batch)
        if missing + len(self.running) <= pool.available + theirs:
            while self.running and missing + len(self.running) > pool.available:
                if not self._evict_for(sequence):
                    return False
            return True
        return not self.running

    def admit(self, sequence: Sequence) -> bool:
        """Let it run if pages for all its tokens are there beside one for each that runs.

        Its table then holds what the prefix index has of it. False: it waits on.
        """
        served = self._pool.match(sequence.table, sequence.tokens, sequence.match_limit)
        missing = self._pool.pages_for(len(sequence.tokens) + 1) - len(sequence.table.pages)
        if not self._room_for(sequence, missing):
            self._pool.release(sequence.table)
            return False
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_rank)
        sequence.computed = served
        sequence.caught_up_at = len(sequence.tokens)
        sequence.queue_ns += self._clock() - sequence.waiting_since_ns
        if sequence.cached_tokens is None:
            sequence.cached_tokens = min(served, sequence.view.prompt_length)
        self._turns.served(sequence, len(sequence.tokens) - served, 0)
        return True

    def decoded(self, sequence: Sequence, tokens: int) -> None:
        """So many tokens of its output were committed."""
        self._turns.served(sequence, 0, tokens)

    def remove(self, sequence: Sequence) -> None:
        """It ended; its pages go back to the pool. Nothing happens when it was removed before."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            sequence.queue_ns += self._clock() - sequence.waiting_since_ns
        elif sequence in self.running:
            self.running.remove(sequence)
            self._ended.append(self._clock() / 1e9)
        else:
            return
        self._turns.left(sequence)
        self._pool.release(sequence.table)

    def plan(self, *, drafting: bool = True) -> tuple[list[Slot], list[Sequence]]:
        """The slots of the next step, and the sequences that were preempted for their pages.

        drafting: whether rows are kept for drafts.
        """
        self._step += 1
        slots, preempted = self._secure_pages(self._share_rows(drafting))
        preempted, self._evicted = [*self._evicted, *preempted], []
        if drafting:
            self._limit_drafts(slots)
        return slots, preempted

    def _share_rows(self, drafting: bool) -> list[Slot]:
        alive = [s for s in self.running if not s.retired]
        decoding = [s for s in alive if not s.prefilling]
        prefilling = [s for s in alive if s.prefilling]
        # Forced spans can be as long as a pass: who is served first changes every step.
        first = self._step % max(len(decoding), 1)
        kept_for_prompts = min(len(prefilling), 1)
        slots = _serve(
            decoding[first:] + decoding[:first], self._settings.step_tokens - kept_for_prompts
        )
        left = self._settings.step_tokens - sum(slot.rows for slot in slots)
        wishes = sum(self._settings.max_draft_tokens for s in decoding if s.drafting and drafting)
        left -= min(wishes, left // 2)
        if self.prompt_rows is not None and slots:
            left = min(left, max(self.prompt_rows(sum(slot.rows for slot in slots)), 1))
        return slots + self._read(prefilling, left)

    def _read(self, prefilling: list[Sequence], rows: int) -> list[Slot]:
        """Slots of prompts: by priority; within it first the one that is being read, then of the
        tenant of whose prompts the least was read, then who came first."""

        def turn(sequence: Sequence) -> tuple[int, bool, int, int]:
            priority, number = sequence.rank
            return priority, number != self._reading, self._turns.was_read(sequence), number

        slots = _serve(sorted(prefilling, key=turn), rows)
        if slots:
            self._reading = None
        for slot in slots:
            self._turns.read(slot.sequence, slot.rows)
            if slot.rows < slot.sequence.pending:
                self._reading = slot.sequence.number
        return slots

    def _secure_pages(self, slots: list[Slot]) -> tuple[list[Slot], list[Sequence]]:
        """Pages for every slot's rows, first in rank first; slots without room shrink or go."""
        kept, preempted = [], []
        for slot in sorted(slots, key=lambda slot: slot.sequence.rank):
            sequence = slot.sequence
            if sequence in preempted:
                continue
            while not self._pool.grow(sequence.table, sequence.computed + slot.rows):
                victim = self._victim(sequence)
                if victim is None:
                    slot.rows = min(slot.rows, self._room(sequence) - sequence.computed)
                    continue
                self._preempt(victim)
                preempted.append(victim)
            if slot.rows:
                kept.append(slot)
        return kept, preempted

    def _room(self, sequence: Sequence) -> int:
        """Positions that its table could cover now."""
        return (len(sequence.table.pages) + self._pool.available) * self._pool.page_tokens

    def _victim(self, sequence: Sequence) -> Sequence | None:
        """The last in rank of those behind ``sequence`` that own pages."""
        last = next((s for s in reversed(self.running) if s.table.pages), None)
        return last if last is not None and last.rank > sequence.rank else None

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pool.release(sequence.table)
        sequence.computed = 0
        sequence.waiting_since_ns = self._clock()
        insort(self.waiting, sequence, key=_rank)

    def _limit_drafts(self, slots: list[Slot]) -> None:
        """Share the rows and pages that are left over equally among the slots that may draft.

        The limits look at no draft, so that cutting by them cannot bias sampling.
        """
        drafting = [slot for slot in slots if slot.samples and slot.sequence.drafting]
        if not drafting:
            return
        rows = self._settings.step_tokens - sum(slot.rows for slot in slots)
        pages = self._pool.available // len(drafting)
        for slot in drafting:
            sequence = slot.sequence
            room = (len(sequence.table.pages) + pages) * self._pool.page_tokens
            slot.draft_limit = min(
                self._settings.max_draft_tokens,
                rows // len(drafting),
                room - len(sequence.tokens),
                sequence.remaining - 1,
            )

    def check_integrity(self, live: Iterable[Sequence]) -> None:
        """Raise ``AssertionError`` unless every live sequence is in one queue, in order."""
        for queue in (self.waiting, self.running):
            assert queue == sorted(queue, key=_rank), "a queue is out of order"
        queued = [*self.waiting, *self.running]
        assert sorted(s.number for s in queued) == sorted(s.number for s in live), "queues differ"
        assert all(not s.table.pages and not s.computed for s in self.waiting), "waits with pages"
        for sequence in self.running:
            sequence.check_integrity(self._pool.page_tokens)
