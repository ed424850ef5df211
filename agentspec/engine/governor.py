"""What is drafted and verified in a step, decided: the one place that knows prices, odds and goals.

For each sequence that samples: which sources are asked (``gate.py``), for how many tokens
(``asking.py``), what their confidences are worth (``acceptance.py``), and how many tokens are
verified (``budget.py``) at what the step costs (``pricing.py``), for the goal that the load asks
for (``policy.py``); or a rival's rule instead of all that (``modes.py``). Nothing here can change a
text: every decision looks at committed tokens, at clocks, and at drafts in the ways that
``budget.py`` allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .acceptance import Acceptance
from .asking import Asking, Scene
from .budget import Bid, choose, gains, survivals
from .draft.base import EMPTY, FORCED, Proposal
from .gate import Gate
from .modes import Mode
from .offers import Call, Offer, brought_by, drafter_of, gains_of
from .policy import Policy
from .pricing import Load, StepCosts
from .watch import SpeculationStats, Watch

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings

    from .cost import CostCurve
    from .sequence import Sequence
    from .slot import Slot

_MARGIN = 0.02
"""What drafts must promise above plain decoding, a share: estimates are not better than that."""
_BLIND = 0.8
"""What a scheduler that does not know of grammars gives a forced token."""
_BEHIND_LEAST = 0.25
"""A draft that stands whole with less probability is not worth a second source behind it."""
_PROFILE_RATE = 0.05
_PROFILE_START = 0.8
"""Confidence of a dense draft's tokens before any was seen, each place."""


@dataclass(slots=True)
class _Pace:
    """When a sequence began to decode, and how many tokens it had then."""

    began_s: float
    tokens: int


class Governor:
    """Decides for one engine. mode: may be changed between two steps."""

    def __init__(self, curve: CostCurve, policy: Policy, settings: EngineSettings):
        places = min(settings.max_sequences, settings.step_tokens)
        self.costs = StepCosts(curve)
        self.policy = policy
        self.acceptance = Acceptance()
        self._curve, self._places = curve, places
        self._most = settings.max_draft_tokens
        self._gate = Gate()
        self._watch = Watch()
        self._mode = Mode(settings.scheduling.mode, places, curve)
        self._offers: dict[int, Offer] = {}
        self._paces: dict[int, _Pace] = {}
        self._profiles: dict[str, list[float]] = defaultdict(list)
        self._asking: dict[str, Asking] = defaultdict(Asking)
        self._scene: Scene | None = None
        self._load, self._other_s = Load(0, {}), 0.0
        self._steps: dict[int, list[float]] = {}
        self._drafting_s = self._pass_s = 0.0
        self._now_s = 0.0

    @property
    def mode(self) -> str:
        return self._mode.name

    @mode.setter
    def mode(self, name: str) -> None:
        """Raises ``UnknownMode``."""
        self._mode = Mode(name, self._places, self._curve)

    def prompt_rows(self, decoding: int) -> int:
        """Rows of prompts that keep a pass over so many decoding rows within the wanted time a
        token; contexts aside."""
        assert self.policy.tpot_s is not None
        return self.costs.curve.rows_within(self.policy.tpot_s) - decoding

    # Before the drafts.

    def begin(self, slots: Seq[Slot], sampling: Seq[Slot]) -> None:
        """A step begins; by a rival's rule, every slot's limit is fixed now.

        slots: all of the step, prompts included; sampling: those that may hold a proposal.
        """
        self._offers.clear()
        self._steps.clear()
        self._drafting_s = self._pass_s = 0.0
        if self._mode.adaptive:
            self._scene = self._seen(slots, sampling) if sampling else None
            return
        for slot in sampling:
            slot.draft_limit = self._mode.width(len(sampling), slot.draft_limit)

    def asks(self, slots: Seq[Slot], source: str) -> list[tuple[Slot, int]]:
        """For which slots a source is to draft, and how many tokens for each.

        A rival's rule takes the first source that has something.
        """
        if not self._mode.adaptive:
            return [(slot, slot.draft_limit) for slot in slots if not len(slot.proposal)]
        able = [slot for slot in slots if self._may_draft(slot, source)]
        if not able or self._scene is None:
            return []
        gate = self._gate
        ready = [slot for slot in able if gate.asks(slot.sequence.number, source)]
        width, chosen = 0, ready
        if ready:
            worth = sum(gate.worth(slot.sequence.number, source) for slot in ready)
            width, trying = self._asking[source].width(len(ready), worth, self._most, self._scene)
            chosen = able if trying else ready
        if width or not ready:
            for slot in able:
                gate.waited(slot.sequence.number, source)
        return [(slot, min(width, slot.draft_limit)) for slot in chosen] if width else []

    def _may_draft(self, slot: Slot, source: str) -> bool:
        """Whether a source could draft for a slot, which may hold an earlier source's draft.

        One whose drafts are usually worth more than the one at hand may replace it: by its past,
        since a choice between drafts by their own confidences would look ahead.
        """
        if not len(slot.proposal):
            return True
        if slot.proposal.draft_probs is not None:
            return False
        usual = self._gate.expected(slot.sequence.number, source)
        return usual is None or usual > sum(self._survival(slot))

    def _seen(self, slots: Seq[Slot], sampling: Seq[Slot]) -> Scene:
        """What the step costs without drafts, and a drafted row in it."""
        costs, curve, count = self.costs, self.costs.curve, len(sampling)
        self._load = load = Load.of((slot.rows, slot.sequence.computed) for slot in slots)
        other_s = curve.attended(load) + costs.rest.seconds(1, count, 0)
        if not self.policy.counts_prompts:
            other_s -= self._prompts(slots, load)
        self._other_s = other_s
        context = sum(slot.sequence.computed for slot in sampling) / count
        token_s, one = costs.token_seconds(), curve.attend(1)

        def row_s(width: int) -> float:
            return token_s + (curve.attend(1 + width) - one) * context / width

        plain_s = curve.seconds(load.rows) + other_s
        return Scene(count, load.rows, plain_s, curve.seconds, row_s)

    def asks_behind(self, slot: Slot, source: str) -> bool:
        """Whether a source is to draft behind the draft at hand: where that may well stand whole,
        and its end is no other than what was committed tells (it is one-hot)."""
        proposal = slot.proposal
        if not self._mode.adaptive or not len(proposal) or len(proposal) >= slot.draft_limit:
            return False
        if proposal.draft_probs is not None or proposal.parents is not None:
            return False
        if source in proposal.sources or not self._pays_behind(slot, source):
            return False
        if self._gate.asks(slot.sequence.number, source):
            return True
        self._gate.waited(slot.sequence.number, source)
        return False

    def _pays_behind(self, slot: Slot, source: str) -> bool:
        """Whether what a source usually drafts is worth its call behind the draft at hand, which
        must stand whole for it, and without which a token costs more."""
        survival, scene = self._survival(slot), self._scene
        if scene is None or survival[-1] < _BEHIND_LEAST:
            return False
        worth = survival[-1] * self._gate.worth(slot.sequence.number, source)
        token_s = scene.plain_s / (scene.sequences + sum(survival))
        return self._asking[source].pays_behind(worth, token_s, scene)

    def asked(
        self, slots: Seq[Slot], limits: Seq[int], call: Call, *, behind: bool = False
    ) -> None:
        """A source was called for the slots, for at most ``limits`` tokens. behind: behind the
        drafts that the slots hold."""
        self._drafting_s += call.seconds
        source = call.source
        longest = max(call.lengths)
        self._asking[source].called(call.seconds, len(slots), max(limits), longest)
        for slot, limit, length in zip(slots, limits, call.lengths, strict=True):
            offer = self._offer(slot)
            offer.asked.append(source)
            offer.limit = len(slot.proposal) + limit if behind else limit
            if not behind:
                offer.drew[source] = limit, length

    # The cut.

    def cut(self, sampling: Seq[Slot]) -> None:
        """Cut every proposal to what is worth verifying; book what the asks were worth.

        sampling: the slots that may hold a proposal.
        """
        for slot in sampling:
            if len(slot.proposal):
                offer = self._offer(slot)
                offer.proposal, offer.survival = slot.proposal, self._survival(slot)
                offer.tested = len(slot.proposal)
        if not self._mode.adaptive or not self._offers:
            return
        bids = [self._bid(slot) for slot in sampling]
        base, rows = self.costs.curve.seconds, self._load.rows
        widths = choose(bids, rows, base, self._other_s + self._drafting_s, margin=_MARGIN)
        for slot, width in zip(sampling, widths, strict=True):
            if len(slot.proposal):
                self._offer(slot).tested = width
                slot.proposal = slot.proposal.cut(width)
        self._remember()
        self._learn(sampling, bids)
        self._book(sampling, bids, widths, rows, base(rows) + self._other_s)

    def _prompts(self, slots: Seq[Slot], load: Load) -> float:
        """Seconds that the prompts in the pass cost."""
        decoding = Load.of((s.rows, s.sequence.computed) for s in slots if s.samples)
        return self.costs.curve.pass_seconds(load) - self.costs.curve.pass_seconds(decoding)

    def _offer(self, slot: Slot) -> Offer:
        sequence = slot.sequence
        if sequence.number not in self._offers:
            self._offers[sequence.number] = Offer(EMPTY, not self._mode.blind and _masked(sequence))
        return self._offers[sequence.number]

    def _survival(self, slot: Slot) -> list[float]:
        sequence = slot.sequence
        proposal, masked = slot.proposal, not self._mode.blind and _masked(sequence)
        confidence = self.acceptance.confidence(sequence.number, proposal, masked)
        if self._mode.blind:
            forced = [name == FORCED for name in proposal.sources]
            confidence = [_BLIND if f else c for f, c in zip(forced, confidence, strict=True)]
        return survivals(confidence, proposal.parents)

    def _bid(self, slot: Slot) -> Bid:
        sequence, offer = slot.sequence, self._offers.get(slot.sequence.number)
        weight = self.policy.weight(sequence.request.priority, self._token_s(sequence))
        if offer is None or not offer.survival:
            return Bid(weight=weight)
        dense = offer.proposal.draft_probs is not None
        # Of a dense draft not even the length is looked at: it may end at an illegal token.
        count = min(offer.limit, slot.draft_limit) if dense else len(offer.survival)
        context, token_s = sequence.computed, self.costs.token_seconds()
        return Bid(
            gain=offer.survival
            if dense or self._mode.blind
            else gains(offer.proposal.sources, offer.survival, offer.proposal.parents),
            dense=dense,
            expected=self._usual(offer.proposal, count) if dense else None,
            own_s=[step * context + token_s for step in self._attend_steps(slot.rows)[:count]],
            weight=weight,
        )

    def _attend_steps(self, rows: int) -> list[float]:
        """Seconds a token of context that each row behind so many adds in this step."""
        if rows not in self._steps:
            costs = [self.costs.curve.attend(rows + i) for i in range(self._most + 1)]
            self._steps[rows] = [b - a for a, b in pairwise(costs)]
        return self._steps[rows]

    def _usual(self, proposal: Proposal, count: int) -> list[float]:
        """The survivals that a dense source's earlier drafts had, by place."""
        profile = self._profiles[drafter_of(proposal)]
        while len(profile) < count:
            profile.append((profile[-1] if profile else 1.0) * _PROFILE_START)
        return profile[:count]

    def _remember(self) -> None:
        """Once the budget stands: later ones may know the survivals of this step's dense drafts."""
        for offer in self._offers.values():
            if offer.proposal.draft_probs is None:
                continue
            profile = self._profiles[drafter_of(offer.proposal)]
            for place, survival in enumerate(offer.survival[: len(profile)]):
                profile[place] += _PROFILE_RATE * (survival - profile[place])

    def _learn(self, sampling: Seq[Slot], bids: Seq[Bid]) -> None:
        """What the drafts of each source promised, also of those that had nothing to offer."""
        promised: dict[str, list[tuple[int, int, Seq[float]]]] = defaultdict(list)
        for slot, bid in zip(sampling, bids, strict=True):
            offer = self._offers.get(slot.sequence.number)
            if offer is None:
                continue
            for source, (limit, _) in offer.drew.items():
                gain = gains_of(offer, source, bid.gain)
                if gain is not None:
                    promised[source].append((slot.sequence.number, limit, gain))
        for source, drafts in promised.items():
            asking = self._asking[source]
            asking.saw([(limit, gain) for _, limit, gain in drafts])
            for number, _, gain in drafts:
                self._gate.promised(number, source, asking.share(gain))

    def _book(
        self, sampling: Seq[Slot], bids: Seq[Bid], widths: Seq[int], rows: int, plain_s: float
    ) -> None:
        """What each ask saved: the tokens it is expected to bring at the price of a plain step,
        less its rows."""
        taken = sum(widths)
        base = self.costs.curve.seconds
        row_s = (base(rows + taken) - base(rows)) / taken if taken else 0.0
        share_s = plain_s / len(sampling)
        for slot, bid, width in zip(sampling, bids, widths, strict=True):
            offer = self._offers.get(slot.sequence.number)
            if offer is None:
                continue
            token_row_s = row_s + (sum(bid.own_s[:width]) / width if width else 0.0)
            brought = brought_by(offer.proposal, bid.gain[:width])
            for source in offer.asked:
                cost_s = self._asking[source].one_more_s(offer.limit)
                tokens, rows_of_it = brought.get(source, (0.0, 0))
                self._gate.booked(
                    slot.sequence.number,
                    source,
                    tokens=tokens,
                    profit_s=tokens * share_s - rows_of_it * token_row_s - cost_s,
                    cost_s=cost_s,
                    plain_s=share_s,
                )

    def _token_s(self, sequence: Sequence) -> float | None:
        """Seconds a token that a sequence has seen since its first."""
        pace = self._paces.get(sequence.number)
        if pace is None or sequence.output_tokens <= pace.tokens:
            return None
        return (self._now_s - pace.began_s) / (sequence.output_tokens - pace.tokens)

    # After the pass.

    def committed(self, sequence: Sequence, committed: int, now_s: float) -> None:
        """So many tokens were appended to a sequence that took part in the step."""
        self._now_s = now_s
        self._paces.setdefault(sequence.number, _Pace(now_s, sequence.output_tokens))
        offer = self._offers.get(sequence.number)
        if offer is None or not len(offer.proposal) or not committed:
            return
        proposal = offer.proposal
        if proposal.draft_probs is not None:
            proposal = proposal.cut(offer.tested)
        came = sequence.tokens[len(sequence.tokens) - committed :]
        self.acceptance.saw(sequence.number, proposal, offer.masked, came, tested=offer.tested)

    def saw_pass(self, slots: Iterable[Slot], seconds: float) -> None:
        """The forward pass over the slots, their proposals included, took so long."""
        self._pass_s = seconds
        self.costs.curve.saw(
            Load.of((slot.rows + len(slot.proposal), slot.start) for slot in slots), seconds
        )

    def saw_step(self, slots: Seq[Slot], seconds: float) -> None:
        """The whole step took so long. Of one without prompts, learn what python takes in it."""
        if not slots:
            return
        self._watch.saw(slots, seconds)
        if self._pass_s and all(slot.verdict is not None for slot in slots):
            drafted = sum(len(slot.proposal) for slot in slots)
            rest_s = max(seconds - self._pass_s - self._drafting_s, 0.0)
            self.costs.rest.saw(rest_s, 1, len(slots), drafted)

    def stats(self) -> SpeculationStats:
        return self._watch.stats(self.acceptance.bins)

    def close(self, sequence: Sequence) -> None:
        self.acceptance.close(sequence.number)
        self._gate.close(sequence.number)
        self._paces.pop(sequence.number, None)
        self._offers.pop(sequence.number, None)


def _masked(sequence: Sequence) -> bool:
    return sequence.constraint is not None and sequence.constraint.in_grammar
