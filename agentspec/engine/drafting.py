"""The engine's side of the drafter contract: who is asked, what is filtered, who is told.

A drafter's exception fails the sequence it was working for, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from functools import partial
from typing import TYPE_CHECKING

from agentspec.wire.errors import InvalidRequest

from .chaining import Follower, joined
from .draft.base import FORCED, Proposal
from .draft.forced import constrain_draft
from .isolation import isolated
from .offers import Call
from .request import GenerationRequest
from .taps import Refillable, Taps

if TYPE_CHECKING:
    from torch import Tensor

    from .draft.base import Drafter, TappedDrafter
    from .governor import Governor
    from .meter import Meter
    from .sequence import Sequence
    from .slot import Slot


class Drafting:
    """All drafters of an engine, in order of preference."""

    def __init__(self, drafters: Seq[Drafter], governor: Governor, meter: Meter, vocab_size: int):
        self._drafters = tuple(drafters)
        self._taps = Taps(drafters)
        self._dropped: set[str] = set()
        self._governor = governor
        self._meter = meter
        self._vocab_size = vocab_size

    def allowed(self, request: GenerationRequest) -> tuple[Drafter, ...]:
        """The drafters a request may use. Raises ``InvalidRequest`` for an unknown source.

        One that was dropped meanwhile is left out: the request was planned before.
        """
        known = {drafter.name for drafter in self._drafters} | {FORCED} | self._dropped
        unknown = [name for name in request.sources if name not in known]
        if unknown:
            raise InvalidRequest(
                f"Unknown draft source '{unknown[0]}'; this engine has {sorted(known)}.",
                param="agentspec.speculation",
            )
        return tuple(d for d in self._drafters if d.name in request.sources)

    def add(self, drafter: Drafter, runner: object) -> None:
        """The last in preference. Raises ``ValueError``, unchanged, where it can't be used."""
        if drafter.name in {FORCED, *(known.name for known in self._drafters)}:
            raise ValueError(f"there is a draft source '{drafter.name}' already")
        self._change((*self._drafters, drafter), runner)

    def drop(self, name: str, sequences: Iterable[Sequence], runner: object) -> None:
        """Forget it, also for the sequences that use it. Raises ``KeyError``."""
        gone = {drafter.name: drafter for drafter in self._drafters}[name]
        self._dropped.add(name)
        self._change(tuple(d for d in self._drafters if d is not gone), runner)
        for sequence in sequences:
            if gone in sequence.drafters:
                sequence.drafters = tuple(d for d in sequence.drafters if d is not gone)
                if sequence.drafting:
                    with isolated(sequence):
                        gone.close(sequence.view)

    def _change(self, drafters: tuple[Drafter, ...], runner: object) -> None:
        taps = Taps(drafters)
        taps.ask(runner)
        self._drafters, self._taps = drafters, taps

    def observe(self, slots: Seq[Slot], features: Tensor) -> None:
        """Show drafters with taps what the pass computed; features [T, N] of all its rows."""
        for drafter in self._taps.drafters:
            told = [s for s in slots if s.sequence.drafting and drafter in s.sequence.drafters]
            told = [slot for slot in told if slot.sequence.computed > slot.start]
            each(told, partial(self._show, drafter, features))

    def _show(self, drafter: TappedDrafter, features: Tensor, slots: Seq[Slot]) -> None:
        with self._meter.drafting([slot.sequence.bill for slot in slots]):
            drafter.observe([self._taps.observed(drafter, slot, features) for slot in slots])

    def open(self, sequence: Sequence) -> None:
        """The sequence starts, or resumes after preemption."""
        if not sequence.drafters:
            return
        sequence.drafting = True
        with isolated(sequence), self._meter.drafting([sequence.bill]):
            for drafter in sequence.drafters:
                drafter.open(sequence.view)

    def missing(self, sequence: Sequence) -> int:
        """How many positions of a prefix hit are computed again for the drafters' sake."""
        if not sequence.drafting:
            return 0
        asked = [drafter for drafter in sequence.drafters if isinstance(drafter, Refillable)]
        with isolated(sequence):
            return max((drafter.missing(sequence.view) for drafter in asked), default=0)
        return 0

    def close(self, sequence: Sequence) -> None:
        """It ended or was preempted; every drafter is told, even if one of them fails."""
        self._governor.close(sequence)
        if not sequence.drafting:
            return
        sequence.drafting = False
        for drafter in sequence.drafters:
            with isolated(sequence), self._meter.drafting([sequence.bill]):
                drafter.close(sequence.view)

    def commit(self, sequence: Sequence, proposal: Proposal, accepted: int, committed: int) -> None:
        """``committed`` tokens were appended, of which ``accepted`` led ``proposal``."""
        self._governor.committed(sequence, committed, self._meter.clock() / 1e9)
        if not sequence.drafting:
            return
        with self._meter.drafting([sequence.bill]):
            for drafter in sequence.drafters:
                drafter.commit(sequence.view, proposal, accepted, committed)

    def propose(self, slots: Seq[Slot], *, speculates: bool = True) -> None:
        """Fill in the proposals of a step: drafted, filtered, and cut to what is worth verifying.

        Without ``speculates`` there are none.
        """
        sampling = [slot for slot in slots if slot.samples]
        self._governor.begin(slots, sampling)
        asking = [slot for slot in sampling if speculates and slot.draft_limit > 0]
        if not asking:
            return
        for drafter in self._drafters:
            able = [slot for slot in asking if drafter in slot.sequence.drafters]
            self._ask(drafter, self._governor.asks(able, drafter.name))
        for drafter in self._drafters:
            if isinstance(drafter, Follower):
                able = [slot for slot in asking if drafter in slot.sequence.drafters]
                behind = [s for s in able if self._governor.asks_behind(s, drafter.name)]
                each(behind, partial(self._extend, drafter, drafter.name))
        started_ns = self._meter.clock()
        for slot in asking:
            self._filter(slot)
        with isolated(*(slot.sequence for slot in sampling)):
            self._governor.cut(sampling)
        self._governor.weighed((self._meter.clock() - started_ns) / 1e9)

    def _ask(self, drafter: Drafter, asked: Seq[tuple[Slot, int]]) -> None:
        widths = {slot.sequence.number: width for slot, width in asked}
        slots = [slot for slot, _ in asked if not slot.sequence.finished]
        each(slots, partial(self._call, drafter, widths))

    def _call(self, drafter: Drafter, widths: dict[int, int], slots: Seq[Slot]) -> None:
        limits = [widths[slot.sequence.number] for slot in slots]
        started_ns = self._meter.clock()
        with self._meter.drafting([slot.sequence.bill for slot in slots]):
            proposals = drafter.propose([slot.sequence.view for slot in slots], limits)
        seconds = (self._meter.clock() - started_ns) / 1e9
        call = Call(drafter.name, seconds, [len(proposal) for proposal in proposals])
        self._governor.asked(slots, limits, call)
        for slot, proposal, limit in zip(slots, proposals, limits, strict=True):
            self._check(drafter.name, proposal, limit)
            if len(proposal):
                slot.proposal = proposal

    def _extend(self, drafter: Follower, name: str, slots: Seq[Slot]) -> None:
        """Let it draft behind the proposals that the slots hold."""
        heads = [slot.proposal for slot in slots]
        room = [slot.draft_limit - len(slot.proposal) for slot in slots]
        started_ns = self._meter.clock()
        with self._meter.drafting([slot.sequence.bill for slot in slots]):
            tails = drafter.propose_behind([slot.sequence.view for slot in slots], heads, room)
        seconds = (self._meter.clock() - started_ns) / 1e9
        call = Call(name, seconds, [len(tail) for tail in tails])
        self._governor.asked(slots, room, call, behind=True)
        for slot, tail, limit in zip(slots, tails, room, strict=True):
            self._check(name, tail, limit)
            if len(tail):
                slot.proposal = joined(slot.proposal, tail)

    def _check(self, name: str, proposal: Proposal, limit: int) -> None:
        if len(proposal) > limit:
            raise ValueError(f"drafter {name} proposed more than its limit")
        if any(not 0 <= token < self._vocab_size for token in proposal.tokens):
            raise ValueError(f"drafter {name} proposed a token that does not exist")

    def _filter(self, slot: Slot) -> None:
        if not len(slot.proposal):
            return
        sequence = slot.sequence
        with isolated(sequence):
            slot.proposal = constrain_draft(
                sequence.view, slot.proposal, slot.draft_limit, sequence.request.stop_ids
            )


def each(slots: Seq[Slot], call: Callable[[Seq[Slot]], None]) -> None:
    """All slots in one call; if it fails, one call each, to find who is at fault."""
    if not slots:
        return
    try:
        call(slots)
    except Exception:
        for slot in slots:
            with isolated(slot.sequence):
                call([slot])
