"""One sequence's part in one step, filled stage by stage.

Legend: R rows of logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .batch import Span
from .draft.base import EMPTY, FORCED, Proposal, Verdict

if TYPE_CHECKING:
    from .sequence import Sequence


@dataclass(slots=True)
class Slot:
    """rows: committed tokens computed in this step, from ``sequence.computed`` on (scheduler).

    draft_limit: most draft tokens behind them (scheduler). proposal: what is verified (drafting).
    logit_rows: offsets in the span whose logits are wanted; first_logit: where they begin among the
    R rows of the pass, and first_row where the span begins among all rows (``place``). verdict: the
    outcome (verification).
    """

    sequence: Sequence
    rows: int
    draft_limit: int = 0
    proposal: Proposal = EMPTY
    start: int = 0
    logit_rows: list[int] = field(default_factory=list)
    first_logit: int = 0
    first_row: int = 0
    verdict: Verdict | None = None

    @property
    def samples(self) -> bool:
        """The rows reach the last committed token, and the sequence wants another one."""
        return self.rows == self.sequence.pending and not self.sequence.finished

    def place(self, first_row: int, first_logit: int) -> Span:
        """Fix what the pass computes; returns it as a span.

        So many rows, and rows of logits, come before it.
        """
        sequence = self.sequence
        self.start = sequence.computed
        self.first_row, self.first_logit = first_row, first_logit
        self.logit_rows = self._wanted_rows()
        committed = sequence.tokens[self.start : self.start + self.rows]
        return Span(
            tokens=[*committed, *self.proposal.tokens],
            start=self.start,
            pages=sequence.table.pages,
            logit_rows=self.logit_rows,
        )

    def _wanted_rows(self) -> list[int]:
        sequence, drafted = self.sequence, len(self.proposal)
        if sequence.request.logprobs is not None:
            waiting = sequence.emission.waiting_from
            known = len(sequence.tokens) if waiting is None else waiting
            end = self.rows + drafted if self.samples else min(self.rows, sequence.pending - 1)
            return list(range(max(known - 1 - self.start, 0), end))
        if not self.samples:
            return []
        tested = [i for i in range(drafted) if self.proposal.sources[i] != FORCED]
        return [self.rows - 1 + i for i in (*tested, drafted)]

    def verify_rows(self) -> list[int | None]:
        """For each position behind the committed tokens: its row of the pass's logits.

        None where the proposal's token is forced.
        """
        index = {offset: self.first_logit + i for i, offset in enumerate(self.logit_rows)}
        sources = (*self.proposal.sources, None)
        return [
            None if source == FORCED else index[self.rows - 1 + i]
            for i, source in enumerate(sources)
        ]
