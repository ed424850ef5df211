"""What is drafted and verified in a step, decided: the one place that knows prices, odds and goals.

For each sequence that samples: which sources are asked (``gate.py``), for how many tokens
(``asking.py``), what their confidences are worth (``acceptance.py``), and how many tokens are
verified (``budget.py``) at what the step costs (``pricing.py``), for the goal that the load asks
for (``policy.py``); or a rival's rule instead of all that (``modes.py``). Nothing here can change a
text: every decision looks at committed tokens, at clocks, and at drafts in the ways that
``budget.py`` allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import pairwise
from typing import TYPE_CHECKING

from .asking import Scene
from .budget import Bid, choose, gains, rows_paid, survivals
from .draft.base import EMPTY, FORCED, Proposal
from .draft_cost import Texts
from .learned import Learned, Offers
from .modes import Mode
from .offers import Call, Offer
from .paces import Paces
from .policy import Policy
from .pricing import LiveCurve, Load, StepCosts, refund
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


class Governor:
    """Decides for one engine. mode: may be changed between two steps."""

    def __init__(self, curve: CostCurve, policy: Policy, settings: EngineSettings):
        places = min(settings.max_sequences, settings.step_tokens)
        live = LiveCurve(curve)
        self._costs = {blind: StepCosts(live) for blind in (False, True)}
        self.policy = policy
        self._curve, self._places = curve, places
        self._most = settings.max_draft_tokens
        self._views = {blind: Learned() for blind in (False, True)}
        self._watch = Watch()
        self._mode = Mode(settings.scheduling.mode, places, curve)
        self._offers: dict[int, Offer] = {}
        self._alive: dict[int, tuple[Proposal, list[float], list[float]]] = {}
        self._paces = Paces()
        self._texts = Texts()
        self._scene: Scene | None = None
        self._load, self._other_s, self._tokens_s = Load(0, {}), 0.0, (0.0, 0.0)
        self._forced_s = 0.0
        self._steps: dict[int, list[float]] = {}
        self._calls: list[tuple[Call, int, int, int]] = []
        self._drafting_s = self._pass_s = 0.0

    @property
    def mode(self) -> str:
        return self._mode.name

    @mode.setter
    def mode(self, name: str) -> None:
        """Raises ``UnknownMode``."""
        self._mode = Mode(name, self._places, self._curve)

    @property
    def _learned(self) -> Learned:
        return self._views[self._mode.blind]

    @property
    def costs(self) -> StepCosts:
        return self._costs[self._mode.blind]

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
        self._alive.clear()
        self._steps.clear()
        self._calls.clear()
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
        parts = [self._new_part(slot, source) for slot in slots]
        if self._scene is None or not any(part > 0.0 for part in parts):
            return []
        account = self._learned.gate.account
        able = [
            (slot, part, account(slot.sequence.number, source))
            for slot, part in zip(slots, parts, strict=True)
            if part > 0.0
        ]
        ready = [one for one in able if one[2].due]
        width, chosen = 0, ready
        if ready:
            worth = sum(part * own.worth for _, part, own in ready)
            asking = self._learned.asking[source]
            width, trying = asking.width(len(ready), worth, self._most, self._scene)
            chosen = able if trying else ready
        for _, _, own in able:
            own.waited()
        return [(slot, min(width, slot.draft_limit)) for slot, _, _ in chosen] if width else []

    def _new_part(self, slot: Slot, source: str) -> float:
        """How much of what a source's drafts usually bring would be new; 0: it may not draft for
        the slot, which may hold an earlier source's draft.

        One whose drafts are usually worth more than the one at hand may replace it: by its past,
        since a choice between drafts by their own confidences would look ahead.
        """
        if not len(slot.proposal):
            return 1.0
        if slot.proposal.draft_probs is not None:
            return 0.0
        usual = self._learned.gate.account(slot.sequence.number, source).expected
        if usual is None:
            return 1.0
        return 1.0 - sum(self._survival(slot)) / usual if usual > 0.0 else 0.0

    def _seen(self, slots: Seq[Slot], sampling: Seq[Slot]) -> Scene:
        """What the step costs without drafts, and a drafted row in it."""
        costs, curve, count = self.costs, self.costs.curve, len(sampling)
        self._load = load = Load.of((slot.rows, slot.sequence.computed) for slot in slots)
        other_s = curve.spans_seconds(load) + costs.rest.seconds(1, count, 0, 0, 0)
        if not self.policy.counts_prompts:
            # Prompts, and forced spans behind last tokens: some pass has to compute them, whatever
            # is drafted. Drafts save none of it, and are no cheaper beside it.
            decoding = Load.of((1, s.sequence.computed + s.rows - 1) for s in sampling)
            other_s -= curve.pass_seconds(load) - curve.pass_seconds(decoding)
        self._other_s = other_s
        self._tokens_s = costs.token_seconds(0.0), costs.token_seconds(1.0)
        self._forced_s = costs.forced_seconds
        context = sum(slot.sequence.computed for slot in sampling) / count
        masked = sum(_masked(slot.sequence) for slot in sampling) / count
        token_s, one = costs.token_seconds(masked), curve.attend(1)

        def row_s(width: int) -> float:
            return token_s + (curve.attend(1 + width) - one) * context / width

        plain_s = curve.seconds(load.rows) + other_s
        return Scene(count, load.rows, plain_s, curve.seconds, row_s, self._texts.unread)

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
        account = self._learned.gate.account(slot.sequence.number, source)
        if account.due:
            return True
        account.waited()
        return False

    def _pays_behind(self, slot: Slot, source: str) -> bool:
        """Whether what a source usually drafts is worth its call behind the draft at hand, which
        must stand whole for it, and without which a token costs more."""
        survival, scene = self._survival(slot), self._scene
        if scene is None or survival[-1] < _BEHIND_LEAST:
            return False
        account = self._learned.gate.account(slot.sequence.number, source)
        worth = survival[-1] * account.worth
        token_s = scene.plain_s / (scene.sequences + sum(survival))
        return self._learned.asking[source].pays_behind(worth, token_s, scene)

    def asked(
        self, slots: Seq[Slot], limits: Seq[int], call: Call, *, behind: bool = False
    ) -> None:
        """A source was called for the slots, for at most ``limits`` tokens. behind: behind the
        drafts that the slots hold."""
        self._drafting_s += call.seconds
        source, unread = call.source, 0
        account = self._learned.gate.account
        for slot, limit, length in zip(slots, limits, call.lengths, strict=True):
            sequence = slot.sequence
            known = sequence.cached_tokens or 0
            unread += account(sequence.number, source).unread(known, len(sequence.tokens))
            offer = self._offer(slot)
            offer.asked.append(source)
            offer.limit = len(slot.proposal) + limit if behind else limit
            if not behind:
                offer.drew[source] = limit, length
        self._calls.append((call, len(slots), max(limits), unread))

    # The cut.

    def cut(self, sampling: Seq[Slot]) -> None:
        """Cut every proposal to what is worth verifying; book what the asks were worth.

        sampling: the slots that may hold a proposal.
        """
        for slot in sampling:
            if len(slot.proposal):
                offer, number = self._offer(slot), slot.sequence.number
                offer.survival, offer.confidence = self._survival(slot), self._alive[number][1]
                offer.proposal, offer.tested = slot.proposal, len(slot.proposal)
        if not self._mode.adaptive or not self._offers:
            return
        back = self._refund(sampling)
        bids = [self._bid(slot, back) for slot in sampling]
        offered = sum(max(len(bid.gain), len(bid.expected or ())) for bid in bids)
        rows = self._load.rows
        pass_s = self.costs.curve.steps(rows, offered + 1)
        other_s = self._other_s + self._drafting_s
        widths = choose(bids, rows, lambda n: pass_s[n - rows], other_s, margin=_MARGIN)
        for slot, width in zip(sampling, widths, strict=True):
            if len(slot.proposal):
                self._offers[slot.sequence.number].tested = width
                if not width and slot.proposal.draft_probs is None:
                    slot.proposal = EMPTY
                elif width < len(slot.proposal):
                    slot.proposal = slot.proposal.cut(width)
        self._tell(sampling, bids, sum(widths), pass_s)

    def weighed(self, seconds: float) -> None:
        """The filter and the cut of this step's drafts took so long: that is part of what their
        calls cost, whether they are verified or not."""
        drafted = sum(count for _, count, _, _ in self._calls)
        for call, count, width, unread in self._calls:
            whole_s = call.seconds + seconds * count / drafted
            asking = self._learned.asking[call.source]
            asking.called(whole_s, count, width, max(call.lengths), unread)
        if drafted:
            self._drafting_s += seconds

    def _tell(self, sampling: Seq[Slot], bids: Seq[Bid], taken: int, pass_s: Seq[float]) -> None:
        """Learn from what was offered, now that the widths stand. pass_s: by drafted rows taken."""
        told: Offers = list(self._offers.items())
        own_s = {slot.sequence.number: b.own_s for slot, b in zip(sampling, bids, strict=True)}
        row_s = (pass_s[taken] - pass_s[0]) / taken if taken else 0.0
        share_s = (pass_s[0] + self._other_s) / len(sampling)
        learned = self._learned
        learned.remember(told)
        learned.promised(told)
        learned.book(told, [own_s[number] for number, _ in told], row_s, share_s)

    def _offer(self, slot: Slot) -> Offer:
        sequence = slot.sequence
        if sequence.number not in self._offers:
            self._offers[sequence.number] = Offer(EMPTY, _masked(sequence))
        return self._offers[sequence.number]

    def _survival(self, slot: Slot) -> list[float]:
        sequence, proposal = slot.sequence, slot.proposal
        known = self._alive.get(sequence.number)
        if known is not None and known[0] is proposal:
            return known[2]
        masked = not self._mode.blind and _masked(sequence)
        confidence = self._learned.acceptance.confidence(sequence.number, proposal, masked)
        if self._mode.blind:
            forced = [name == FORCED for name in proposal.sources]
            confidence = [_BLIND if f else c for f, c in zip(forced, confidence, strict=True)]
        alive = survivals(confidence, proposal.parents)
        self._alive[sequence.number] = proposal, confidence, alive
        return alive

    def _refund(self, sampling: Seq[Slot]) -> tuple[float, float]:
        """See ``pricing.refund``. Of one-hot drafts: how many tokens of a sampled one are forced
        hangs on what was drawn."""
        drafts = [slot.proposal for slot in sampling if slot.proposal.draft_probs is None]
        forced = sum(draft.sources.count(FORCED) for draft in drafts)
        if self._mode.blind or not forced:
            return 0.0, 0.0
        plain_s = self.costs.curve.seconds(self._load.rows) + self._other_s
        return refund(self.costs.curve, len(sampling), forced, plain_s)

    def _bid(self, slot: Slot, back: tuple[float, float]) -> Bid:
        sequence, offer = slot.sequence, self._offers.get(slot.sequence.number)
        pace_s = self._paces.token_s(sequence) if self.policy.heeds_paces else None
        weight = self.policy.weight(sequence.request.priority, pace_s)
        if offer is None or not offer.survival:
            return Bid(weight=weight)
        proposal, alive = offer.proposal, offer.survival
        dense = proposal.draft_probs is not None
        offer.gain = alive
        if not self._mode.blind:
            offer.gain = gains(proposal.sources, alive, proposal.parents)
            offer.paid = rows_paid(proposal.sources, alive)
        # Of a dense draft not even the length is looked at: it may end at an illegal token.
        count = min(offer.limit, slot.draft_limit) if dense else len(alive)
        context, token_s = sequence.computed, self._tokens_s[offer.masked]
        own_s = [step * context + token_s for step in self._attend_steps(slot.rows)[:count]]
        if offer.paid is not None and not dense:
            saved_s, most_s = back
            for place, paid in enumerate(offer.paid):
                if proposal.sources[place] == FORCED:
                    row_s = own_s[place] - token_s
                    spent_s = self._forced_s + row_s - (1.0 - paid) * (saved_s + row_s)
                    own_s[place] = max(spent_s, -most_s)
        return Bid(
            gain=alive if dense else offer.gain,
            dense=dense,
            expected=self._learned.usual(offer, count) if dense else None,
            own_s=own_s,
            weight=weight,
        )

    def _attend_steps(self, rows: int) -> list[float]:
        """Seconds a token of context that each row behind so many adds in this step."""
        if rows not in self._steps:
            costs = [self.costs.curve.attend(rows + i) for i in range(self._most + 1)]
            self._steps[rows] = [b - a for a, b in pairwise(costs)]
        return self._steps[rows]

    # After the pass.

    def committed(self, sequence: Sequence, committed: int, now_s: float) -> None:
        """So many tokens were appended to a sequence that took part in the step."""
        fresh = self._paces.saw(sequence, now_s)
        prompt = sequence.view.prompt_length - (sequence.cached_tokens or 0)
        self._texts.step(prompt if fresh else 0)
        offer = self._offers.get(sequence.number)
        if offer is None or not len(offer.proposal) or not committed:
            return
        proposal = offer.proposal
        if proposal.draft_probs is not None:
            proposal = proposal.cut(offer.tested)
        came = sequence.tokens[len(sequence.tokens) - committed :]
        self._learned.acceptance.saw(
            sequence.number,
            proposal,
            offer.masked and not self._mode.blind,
            came,
            tested=offer.tested,
            corrected=offer.confidence,
        )

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
            drafted = [0, 0, 0]
            for slot in slots:
                if len(slot.proposal):
                    names = slot.proposal.sources
                    forced = 0 if self._mode.blind else names.count(FORCED)
                    drafted[self._offer(slot).masked] += len(names) - forced
                    drafted[2] += forced
            rest_s = max(seconds - self._pass_s - self._drafting_s, 0.0)
            self.costs.rest.saw(rest_s, 1, len(slots), *drafted)

    def stats(self) -> SpeculationStats:
        return self._watch.stats(self._learned.acceptance.bins)

    def close(self, sequence: Sequence) -> None:
        for learned in self._views.values():
            learned.close(sequence.number)
        self._paces.close(sequence.number)
        self._offers.pop(sequence.number, None)


def _masked(sequence: Sequence) -> bool:
    return sequence.constraint is not None and sequence.constraint.in_grammar
