"""What is counted of one sequence, and the report made of it (design: honest counts)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from agentspec.wire.extension import BusyTime, SourceCount, SpecReport

from .draft.base import FORCED


@dataclass(slots=True)
class Tally:
    """Counts of one sequence's life, preemptions included.

    passes: forward passes that sampled. hist[j]: decode steps whose verification accepted j drafted
    tokens. The first pass, which ends the prompt, is one of them only when it verified drafts: so
    the drafts in ``hist`` are those in ``sources``, and plain prompts don't dilute the mean.
    redecoded: tokens taken back because nothing could follow them that meets the schema.
    """

    passes: int = 0
    redecoded: int = 0
    hist: list[int] = field(default_factory=list)
    sources: dict[str, SourceCount] = field(default_factory=lambda: defaultdict(SourceCount))

    def forced(self) -> None:
        """One token was committed because the constraint left no choice."""
        count = self.sources[FORCED]
        count.drafted += 1
        count.accepted += 1

    def verified(self, drafted: Seq[str], accepted: Seq[str]) -> None:
        """A pass sampled. drafted, accepted: source of each token, forced ones left out."""
        for name in drafted:
            self.sources[name].drafted += 1
        for name in accepted:
            self.sources[name].accepted += 1
        self.passes += 1
        if self.passes > 1 or drafted:
            missing = len(accepted) + 1 - len(self.hist)
            self.hist.extend([0] * missing)
            self.hist[len(accepted)] += 1

    def report(
        self,
        *,
        busy: BusyTime,
        queue_us: int,
        exact: bool,
        grammar_cold: bool | None,
        window: str | None,
    ) -> SpecReport:
        return SpecReport(
            sources=dict(self.sources),
            steps=sum(self.hist),
            hist=list(self.hist),
            busy_us=busy,
            queue_us=queue_us,
            exact=exact,
            grammar_cold=grammar_cold,
            redecoded=self.redecoded,
            window=window,
        )
