"""One sequence's part in one step, filled stage by stage.

Legend: R rows of logits.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
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
    outcome (verification). standing: the tokens of the proposal that were committed, whoever chose
    them, in order (commit).
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
    standing: Seq[int] = ()

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
            parents=self.proposal.parents,
        )

    def offsets(self, count: int) -> list[int]:
        """Where in the span the rows of its first ``count`` committed positions are."""
        return [*range(self.rows), *(self.rows + node for node in self.standing)][:count]

    def moves(self) -> list[tuple[int, int]]:
        """Of a tree: (source, to) for the K/V of what stands that lies behind its position."""
        first = self.start + self.rows
        return [(first + n, first + i) for i, n in enumerate(self.standing) if n != i]

    def _wanted_rows(self) -> list[int]:
        sequence, drafted = self.sequence, len(self.proposal)
        if sequence.request.logprobs is not None:
            waiting = sequence.emission.waiting_from
            known = len(sequence.tokens) if waiting is None else waiting
            end = self.rows + drafted if self.samples else min(self.rows, sequence.pending - 1)
            return list(range(max(known - 1 - self.start, 0), end))
        if not self.samples:
            return []
        untested = self._untested()
        return [self.rows + node for node in range(-1, drafted) if node not in untested]

    def _untested(self) -> set[int]:
        """The tokens of the proposal (-1: the committed ones) that a forced one follows."""
        proposal = self.proposal
        pairs = zip(proposal.above, proposal.sources, strict=True)
        return {above for above, source in pairs if source == FORCED}

    def verify_rows(self) -> list[int | None]:
        """The row of the pass's logits behind the committed tokens, and behind each drafted one.

        None where a forced token of the proposal follows.
        """
        index = {offset: self.first_logit + i for i, offset in enumerate(self.logit_rows)}
        untested = self._untested()
        return [
            None if node in untested else index[self.rows + node]
            for node in range(-1, len(self.proposal))
        ]
