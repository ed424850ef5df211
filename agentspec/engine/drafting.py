"""The engine's side of the drafter contract: who is asked, what is filtered, who is told.

A drafter's exception fails the sequence it was working for, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from agentspec.wire.errors import InvalidRequest

from .budget import choose_widths
from .draft.base import FORCED, Proposal
from .draft.forced import constrain_draft
from .isolation import isolated
from .request import GenerationRequest

if TYPE_CHECKING:
    from .cost import CostCurve
    from .draft.base import Drafter
    from .meter import Meter
    from .sequence import Sequence
    from .slot import Slot


class Drafting:
    """All drafters of an engine, in order of preference."""

    def __init__(self, drafters: Seq[Drafter], curve: CostCurve, meter: Meter, vocab_size: int):
        tapped = [drafter.name for drafter in drafters if drafter.taps]
        if tapped:
            raise ValueError(f"drafters {tapped} need target features, which are not kept yet")
        self._drafters = tuple(drafters)
        self._curve = curve
        self._meter = meter
        self._vocab_size = vocab_size

    def allowed(self, request: GenerationRequest) -> tuple[Drafter, ...]:
        """The drafters a request may use. Raises ``InvalidRequest`` for an unknown source."""
        known = {drafter.name for drafter in self._drafters} | {FORCED}
        unknown = [name for name in request.sources if name not in known]
        if unknown:
            raise InvalidRequest(
                f"Unknown draft source '{unknown[0]}'; this engine has {sorted(known)}.",
                param="agentspec.speculation",
            )
        return tuple(d for d in self._drafters if d.name in request.sources)

    def open(self, sequence: Sequence) -> None:
        """The sequence starts, or resumes after preemption."""
        if not sequence.drafters:
            return
        sequence.drafting = True
        with isolated(sequence), self._meter.drafting([sequence.bill]):
            for drafter in sequence.drafters:
                drafter.open(sequence.view)

    def close(self, sequence: Sequence) -> None:
        """It ended or was preempted; every drafter is told, even if one of them fails."""
        if not sequence.drafting:
            return
        sequence.drafting = False
        for drafter in sequence.drafters:
            with isolated(sequence), self._meter.drafting([sequence.bill]):
                drafter.close(sequence.view)

    def commit(self, sequence: Sequence, proposal: Proposal, accepted: int, committed: int) -> None:
        """``committed`` tokens were appended, of which ``accepted`` led ``proposal``."""
        if not sequence.drafting:
            return
        with self._meter.drafting([sequence.bill]):
            for drafter in sequence.drafters:
                drafter.commit(sequence.view, proposal, accepted, committed)

    def propose(self, slots: Seq[Slot], base_rows: int) -> None:
        """Fill in the proposals: the first drafter that has one, filtered and cut to its width.

        base_rows: rows that the pass computes anyway.
        """
        sampling = [slot for slot in slots if slot.samples]
        asking = [slot for slot in sampling if slot.draft_limit > 0]
        for drafter in self._drafters:
            self._ask(
                drafter,
                [s for s in asking if drafter in s.sequence.drafters and not len(s.proposal)],
            )
        for slot in asking:
            self._filter(slot)
        if any(len(slot.proposal) for slot in sampling):
            with isolated(*(slot.sequence for slot in sampling)):
                proposals = [slot.proposal for slot in sampling]
                widths = choose_widths(proposals, base_rows, self._curve)
                for slot, width in zip(sampling, widths, strict=True):
                    slot.proposal = slot.proposal.cut(width)

    def _ask(self, drafter: Drafter, slots: Seq[Slot]) -> None:
        """All slots in one call; if it fails, one call each, to find who is at fault."""
        slots = [slot for slot in slots if not slot.sequence.finished]
        if not slots:
            return
        try:
            self._call(drafter, slots)
        except Exception:
            for slot in slots:
                with isolated(slot.sequence):
                    self._call(drafter, [slot])

    def _call(self, drafter: Drafter, slots: Seq[Slot]) -> None:
        with self._meter.drafting([slot.sequence.bill for slot in slots]):
            proposals = drafter.propose(
                [slot.sequence.view for slot in slots], [slot.draft_limit for slot in slots]
            )
        for slot, proposal in zip(slots, proposals, strict=True):
            if len(proposal) > slot.draft_limit:
                raise ValueError(f"drafter {drafter.name} proposed more than its limit")
            if any(not 0 <= token < self._vocab_size for token in proposal.tokens):
                raise ValueError(f"drafter {drafter.name} proposed a token that does not exist")
            slot.proposal = proposal

    def _filter(self, slot: Slot) -> None:
        if not len(slot.proposal):
            return
        sequence = slot.sequence
        with isolated(sequence):
            slot.proposal = constrain_draft(
                sequence.view, slot.proposal, slot.draft_limit, sequence.request.stop_ids
            )
