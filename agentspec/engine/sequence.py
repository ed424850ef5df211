"""The running state of one sequence: its tokens, its pages, and what it has sent out.

Read next: ``commit.py`` (how tokens are added), ``scheduler.py`` (when it gets rows).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .cache import PageTable
from .closeout import CloseOut
from .draft.base import DraftView
from .emission import Emission
from .meter import Bill, Clock, MeteredConstraint
from .request import GenerationRequest, Output
from .sampling import Entropy
from .tally import Tally

if TYPE_CHECKING:
    from .constrain import Constraint
    from .draft.base import Drafter


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One sequence from ``Engine.add`` to its last output.

    number: unique in the engine's life, rises with arrival.
    drafters: those that the request allows, in order of preference; drafting: they are open.
    computed: leading positions whose K/V is valid. It is less than ``len(tokens)`` while running:
        the last token has none before it was a row of a forward pass.
    control_since_ns: when it came, by the clock of the control windows.
    caught_up_at: token count that ends the prefill phase (prompt, or everything after preemption).
    finish_reason: set when no further token will be committed. With log-probabilities wanted the
        sequence may still need a pass that tells those of its last forced tokens (``draining``).
    """

    number: int
    request: GenerationRequest
    view: DraftView
    emission: Emission
    table: PageTable
    entropy: Entropy
    drafters: tuple[Drafter, ...] = ()
    constraint: Constraint | None = None
    close_out: CloseOut | None = None
    bill: Bill = field(default_factory=Bill)
    tally: Tally = field(default_factory=Tally)
    begun: bool = False
    drafting: bool = False
    computed: int = 0
    caught_up_at: int = 0
    cached_tokens: int | None = None
    waiting_since_ns: int = 0
    control_since_ns: int = 0
    queue_ns: int = 0
    told: int = 0
    finish_reason: str | None = None
    error: str | None = None
    closed_out: bool = False

    @classmethod
    def of(
        cls, request: GenerationRequest, number: int, drafters: tuple[Drafter, ...], clock: Clock
    ) -> Sequence:
        """A new sequence that waits from now on; its constraint is not started yet."""
        table = PageTable(request.cache_scope)
        entropy = Entropy.of(request.sampling.seed)
        return cls(
            number=number,
            request=request,
            view=DraftView(
                sequence_id=number,
                cache_scope=request.cache_scope,
                session=request.session,
                tokens=list(request.prompt),
                prompt_length=len(request.prompt),
                sampling=request.sampling,
                entropy=entropy,
                stop_ids=request.stop_ids,
                pages=table.pages,
            ),
            emission=Emission(request.stop, wants_infos=request.logprobs is not None),
            table=table,
            entropy=entropy,
            drafters=drafters,
            waiting_since_ns=clock(),
        )

    def start_constraint(self, clock: Clock) -> None:
        """Open the grammar session, charged to the bill. Raises what the grammar raises."""
        if self.request.constraint is not None:
            session = self.request.constraint.session()
            self.constraint = MeteredConstraint(session, self.bill, clock)
            self.view.constraint = self.constraint
            self.close_out = CloseOut(self.request.max_tokens)

    @property
    def tokens(self) -> list[int]:
        return self.view.tokens

    @property
    def rank(self) -> tuple[int, int]:
        """Ascending order of service: priority, then arrival."""
        return (-self.request.priority, self.number)

    @property
    def pending(self) -> int:
        """Committed tokens without K/V: the next rows, last token included."""
        return len(self.tokens) - self.computed

    @property
    def prefilling(self) -> bool:
        return self.computed < self.caught_up_at

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.view.prompt_length

    @property
    def remaining(self) -> int:
        """Output tokens that may still be committed."""
        return self.request.max_tokens - self.output_tokens

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def draining(self) -> bool:
        """Finished, but a pass must still tell the probabilities of forced tokens."""
        return self.finish_reason in ("stop", "length") and self.emission.waiting_from is not None

    @property
    def retired(self) -> bool:
        """Nothing more will be computed for it."""
        return self.finished and not self.draining

    @property
    def match_limit(self) -> int:
        """Positions that a prefix hit may serve: the rows behind them must be computed."""
        last = len(self.tokens) - 1
        waiting = self.emission.waiting_from
        return last if waiting is None else min(last, waiting - 1)

    def compute_again(self, count: int, *, fresh: bool) -> None:
        """The last ``count`` positions of a prefix hit become rows of the next passes."""
        self.computed = max(self.computed - count, 0)
        if fresh and self.cached_tokens is not None:
            self.cached_tokens = min(self.cached_tokens, self.computed)

    def finish(self, reason: str, error: str | None = None) -> None:
        """End it; the first reason stands, but an error or abort overrules a drain."""
        if self.retired:
            return
        if not self.finished:
            self.emission.finish()
        self.finish_reason, self.error = reason, error

    def output(self) -> Output | None:
        """What happened since the last call, or None where nothing did."""
        if self.retired:
            self.emission.abandon()
        text, infos = self.emission.take()
        fresh, self.told = self.output_tokens - self.told, self.output_tokens
        if not (text or infos or fresh or self.retired):
            return None
        output = Output(
            id=self.request.id,
            text=text,
            tokens=fresh,
            infos=infos,
            cached_tokens=self.cached_tokens or 0,
            output_tokens=self.output_tokens,
        )
        if self.retired:
            output.finish_reason, output.error = self.finish_reason, self.error
            output.closed_out = self.closed_out
            output.stopped_by = self.emission.stopped_by
        return output

    def check_integrity(self, page_tokens: int) -> None:
        """Raise ``AssertionError`` unless the intervals of a running sequence are in order."""
        assert 0 <= self.computed < len(self.tokens), "the last token's K/V is never known"
        assert self.computed <= len(self.table.pages) * page_tokens, "K/V without pages"
        assert len(self.table.keys) >= self.computed // page_tokens, "full pages not published"
        assert 0 <= self.output_tokens <= self.request.max_tokens, "more tokens than allowed"
