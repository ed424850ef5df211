"""The engine: ``Engine.step`` is its table of contents.

A step computes one forward pass over many sequences. A sequence has committed tokens; those whose
K/V is not computed yet (a part of the prompt, the last sampled token, forced tokens) are its next
rows. Where the rows reach its last token, draft tokens follow, and the pass's logits tell how many
of them stand and what comes next.

Read next: ``scheduler.py`` (who gets rows), ``drafting.py``, ``verify.py``, ``commit.py``.
Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence as Seq
from copy import copy
from typing import TYPE_CHECKING, Protocol

from .admission import check_request
from .batch import Forward, Span
from .cache import PagePool
from .commit import advance, begin
from .draft.base import FORCED
from .drafting import Drafting
from .governor import Governor
from .infos import tell_infos
from .isolation import isolated
from .meter import Clock, Meter
from .policy import Policy
from .request import GenerationRequest, Output
from .scheduler import Scheduler
from .sequence import Sequence
from .slot import Slot
from .stats import EngineStats
from .verify import verify

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings
    from agentspec.wire.extension import SpecReport

    from .control import ControlWindows
    from .cost import CostCurve
    from .draft.base import Drafter

HOST = "cpu"
"""The device whose logits are verified a sequence at a time."""


class Runner(Protocol):
    """The model: computes passes over a K/V pool that it owns. Pages are numbered from 0.

    exact: a token's bits do not depend on batch, chunking, prefix hits or drafts.
    One that can serve drafters with taps also has ``set_taps`` (``taps.Tappable``).
    """

    vocab_size: int
    page_tokens: int
    num_pages: int
    context_tokens: int
    exact: bool

    def forward(self, spans: Seq[Span], /) -> Forward: ...

    def compact(self, pages: Seq[int], moves: Seq[tuple[int, int]], /) -> None:
        """Move K/V of the last pass within a sequence: for each (source, to) in order, slot ``to``
        becomes what ``source`` is. Slot s is number s % page_tokens of pages[s // page_tokens]."""
        ...


class Engine:
    """Sequences in, outputs out, step by step. Every call comes from one thread.

    drafters: in order of preference. token_bytes: the bytes of each token id (special tokens that
    are not part of the text: empty); ids beyond its end have none. clock: monotonic nanoseconds of
    the clock that ``deadline_s`` refers to. control: when to do without drafts; None: never.
    """

    def __init__(
        self,
        runner: Runner,
        drafters: Seq[Drafter],
        *,
        curve: CostCurve,
        settings: EngineSettings,
        token_bytes: Seq[bytes],
        clock: Clock = time.monotonic_ns,
        control: ControlWindows | None = None,
    ):
        self._runner = runner
        self._clock = clock
        self._control = control
        self._speculates = True
        self._context_tokens = min(settings.context_tokens, runner.context_tokens)
        missing = runner.vocab_size - len(token_bytes)
        self._token_bytes = [*token_bytes, *[b""] * missing]
        self._meter = Meter(clock)
        self._pool = PagePool(runner.num_pages, runner.page_tokens)
        self._scheduler = Scheduler(self._pool, settings, clock)
        self._governor = Governor(curve, Policy.of(settings), settings)
        if self._governor.policy.tpot_s is not None:
            self._scheduler.prompt_rows = self._governor.prompt_rows
        self._drafting = Drafting((), self._governor, self._meter, runner.vocab_size)
        for drafter in drafters:
            self.add_drafter(drafter)
        self._live: dict[str, Sequence] = {}
        self._arrivals = 0
        self._counts: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; nothing is computed before the next step.

        Raises ``Overloaded`` (queue full), ``ContextLengthExceeded`` and ``InvalidRequest`` (also
        for what could never fit the page pool); the engine is then unchanged.
        """
        check_request(request, self._runner, self._context_tokens)
        assert request.id not in self._live, f"id {request.id} is in use"
        drafters = self._drafting.allowed(request)
        sequence = Sequence.of(request, self._arrivals, drafters, self._clock)
        sequence.view.page_epochs = self._pool.epochs
        if self._control is not None:
            sequence.control_since_ns = self._control.clock()
        self._scheduler.enqueue(sequence)
        self._live[request.id] = sequence
        self._arrivals += 1

    def add_drafter(self, drafter: Drafter) -> None:
        """Let requests that come from now on use it, in preference after those that are there.

        Raises ``ValueError`` where its name is taken, or it needs features that the runner doesn't
        give; nothing is changed then.
        """
        self._drafting.add(drafter, self._runner)

    def drop_drafter(self, name: str) -> None:
        """Do without it from now on, in running sequences too. Raises ``KeyError``."""
        self._drafting.drop(name, self._live.values(), self._runner)

    def abort(self, request_id: str) -> None:
        """Give a sequence up: the next step tells it ("abort") and computes nothing for it.

        An id that is not there (it has ended meanwhile) is ignored.
        """
        if request_id in self._live:
            self._live[request_id].finish("abort")

    @property
    def speculation_mode(self) -> str:
        """As in the settings; may be changed between two steps (raises ``UnknownMode``)."""
        return self._governor.mode

    @speculation_mode.setter
    def speculation_mode(self, mode: str) -> None:
        self._governor.mode = mode

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._live)

    def step(self) -> list[Output]:
        """Compute one pass; returns what every sequence with news has to tell.

        An exception of one sequence's draft, constraint or verification ends that sequence with
        finish_reason "error"; one of the forward pass ends all that took part in it.
        """
        self._meter.start()
        started_ns = self._clock()
        self._speculates = self._control is None or not self._control.off_now()
        ended = self._sweep()
        self._admit()
        slots = self._schedule()
        self._draft(slots)
        forward = self._forward(slots)
        self._verify(slots, forward)
        self._commit(slots, forward)
        self._governor.saw_step(slots, (self._clock() - started_ns) / 1e9)
        ended += self._retire()
        return self._tell(ended)

    def _sweep(self) -> list[Sequence]:
        """Give up what was aborted or is too late, before it costs a row."""
        now_s = self._clock() / 1e9
        for sequence in self._live.values():
            deadline_s = sequence.request.deadline_s
            if deadline_s is not None and now_s >= deadline_s:
                sequence.finish("deadline")
        return self._retire()

    def _admit(self) -> None:
        """Let waiting sequences run, as places and pages allow."""
        while (sequence := self._scheduler.candidate()) is not None:
            if not sequence.begun:
                self._begin(sequence)
            if sequence.retired:
                self._scheduler.remove(sequence)
                continue
            fresh = sequence.cached_tokens is None
            if not self._scheduler.admit(sequence):
                return
            self._drafting.open(sequence)
            # The same bits are written once more, so others that hold these pages see no change.
            if self._runner.exact and self._speculates:
                sequence.compute_again(self._drafting.missing(sequence), fresh=fresh)
            if fresh:
                self._counts["prompt_tokens"] += sequence.view.prompt_length
                self._counts["prefix_hit_tokens"] += sequence.cached_tokens or 0

    def _begin(self, sequence: Sequence) -> None:
        """Open the constraint and commit what it forces before the first token."""
        sequence.begun = True
        with isolated(sequence):
            sequence.start_constraint(self._clock)
            begin(sequence, self._token_bytes)

    def _schedule(self) -> list[Slot]:
        slots, preempted = self._scheduler.plan(drafting=self._speculates)
        for sequence in preempted:
            self._drafting.close(sequence)
            self._counts["preemptions"] += 1
        return slots

    def _draft(self, slots: list[Slot]) -> None:
        self._drafting.propose(slots, speculates=self._speculates)

    def _forward(self, slots: list[Slot]) -> Forward | None:
        """One pass over all slots; None where there is none or it failed.

        Its logits are [R, V] float.
        """
        slots[:] = [slot for slot in slots if not slot.sequence.retired]
        if not slots:
            return None
        with isolated(*(slot.sequence for slot in slots)):
            spans, rows, logits = [], 0, 0
            for slot in slots:
                spans.append(self._place(slot, rows, logits))
                rows += len(spans[-1].tokens)
                logits += len(slot.logit_rows)
            started_ns = self._clock()
            forward = self._runner.forward(spans)
            self._governor.saw_pass(slots, (self._clock() - started_ns) / 1e9)
            self._counts["forwards"] += 1
            assert forward.logits.shape[0] == logits, "the runner owes a row of logits each"
            return forward
        return None

    def _place(self, slot: Slot, first_row: int, first_logit: int) -> Span:
        sequence, span = slot.sequence, slot.place(first_row, first_logit)
        end = slot.start + len(span.tokens)
        grown = self._pool.grow(sequence.table, end)
        assert grown, "the scheduler promised pages for the drafts"
        prompt_rows = min(max(sequence.view.prompt_length - slot.start, 0), slot.rows)
        sequence.bill.prefill_rows += prompt_rows
        sequence.bill.decode_rows += len(span.tokens) - prompt_rows
        return span

    def _verify(self, slots: list[Slot], forward: Forward | None) -> None:
        """Ask, for every slot that samples, how much of its proposal stands and what follows."""
        if forward is None:
            return
        waiting = [slot for slot in slots if slot.samples]
        if forward.logits.device.type != HOST:
            from . import device_verify

            device_verify.verify_all([s for s in waiting if device_verify.able(s)], forward.logits)
            waiting = [slot for slot in waiting if not device_verify.able(slot)]
        for slot in waiting:
            sequence = slot.sequence
            with isolated(sequence):
                slot.verdict = verify(
                    sequence.view,
                    slot.proposal,
                    forward.logits,
                    slot.verify_rows(),
                    sequence.entropy,
                    sequence.request.stop_ids,
                )

    def _commit(self, slots: list[Slot], forward: Forward | None) -> None:
        if forward is None:
            return
        came: list[tuple[Slot, int, int]] = []
        for slot in slots:
            if not slot.sequence.retired:
                with isolated(slot.sequence):
                    came.append((slot, *self._commit_one(slot, forward)))
        if self._speculates and forward.features is not None:
            self._drafting.observe([slot for slot, _, _ in came], forward.features)
        for slot, accepted, committed in came:
            self._scheduler.decoded(slot.sequence, committed)
            if committed or slot.verdict is not None:
                with isolated(slot.sequence):
                    self._drafting.commit(slot.sequence, slot.proposal, accepted, committed)

    def _commit_one(self, slot: Slot, forward: Forward) -> tuple[int, int]:
        """Append what was decided; keep count; publish pages that are full now.

        Returns how many drafted tokens, and how many tokens at all, were committed.
        """
        sequence, proposal = slot.sequence, slot.proposal
        before, accepted = len(sequence.tokens), 0
        if slot.verdict is not None:
            accepted = self._advance(slot)
        committed = sequence.tokens[before:]
        slot.standing = proposal.follow(committed)
        if moves := slot.moves():
            self._runner.compact(sequence.table.pages, moves)
        computed = sequence.computed + slot.rows + len(slot.standing)
        # Where the token behind a draft was taken back, its place is decoded again.
        sequence.computed = min(computed, len(sequence.tokens) - 1)
        tell_infos(slot, forward.logits)
        self._pool.publish(sequence.table, sequence.tokens, sequence.computed)
        return accepted, len(committed)

    def _advance(self, slot: Slot) -> int:
        """Commit along the verdict. Returns how many tokens of the proposal were committed."""
        sequence, proposal, verdict = slot.sequence, slot.proposal, slot.verdict
        assert verdict is not None
        candidates = (*(proposal.tokens[i] for i in verdict.standing), verdict.next_token)
        kept = advance(sequence, candidates, self._token_bytes)[: verdict.accepted]
        chosen = [
            proposal.sources[i]
            for i, by_model in zip(verdict.standing, kept, strict=False)
            if by_model
        ]
        assert FORCED not in chosen, "an untested token was committed that nothing forced"
        sequence.tally.verified([s for s in proposal.sources if s != FORCED], chosen)
        return len(kept)

    def _retire(self) -> list[Sequence]:
        """Take out the sequences for which nothing more will be computed."""
        ended = [sequence for sequence in self._live.values() if sequence.retired]
        for sequence in ended:
            del self._live[sequence.request.id]
            self._drafting.close(sequence)
            self._scheduler.remove(sequence)
        return ended

    def _tell(self, ended: list[Sequence]) -> list[Output]:
        """Settle the step's time, then say what happened."""
        concerned = [*ended, *self._scheduler.running, *self._scheduler.waiting]
        self._meter.settle([s.bill for s in concerned if s.retired or s.bill.open])
        self._counts["steps"] += 1
        outputs = []
        for sequence in concerned:
            output = sequence.output()
            if output is None:
                continue
            self._counts["output_tokens"] += output.tokens
            if sequence.retired:
                self._finished[sequence.finish_reason or ""] += 1
                output.report = self._report(sequence)
            outputs.append(output)
        return outputs

    def _report(self, sequence: Sequence) -> SpecReport:
        constraint = sequence.request.constraint
        control = self._control
        return sequence.tally.report(
            busy=sequence.bill.busy,
            queue_us=sequence.queue_ns // 1000,
            exact=self._runner.exact,
            grammar_cold=None if constraint is None else constraint.cold,
            window=None if control is None else control.arm(sequence.control_since_ns),
        )

    def stats(self) -> EngineStats:
        """A snapshot; totals run from the engine's start."""
        pool = self._pool
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            pages_used=pool.used,
            pages_cached=pool.cached,
            pages_free=pool.free,
            busy_us=copy(self._meter.busy),
            finished=dict(self._finished),
            speculation=self._governor.stats(),
            **self._counts,
        )

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless pages, queues and sequences agree. Between two steps."""
        self._pool.check_integrity(s.table for s in self._live.values())
        self._scheduler.check_integrity(self._live.values())
