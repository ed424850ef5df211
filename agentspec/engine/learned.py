"""What drafts have been worth, learnt step by step, as one way of looking at them sees it.

A scheduler that knows of grammars and one that doesn't learn apart: what a draft promises is not
the same to both, and engines are switched between them to compare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Seq

from .acceptance import Acceptance
from .asking import Asking, Seen
from .draft.base import FORCED
from .gate import Gate
from .offers import Offer, brought_by, drafter_of, gains_of

_PROFILE_RATE = 0.05
_PROFILE_START = 0.8
"""Confidence of a dense draft's tokens before any was seen, each place."""

Offers = Seq[tuple[int, Offer]]
"""Of one step, by the numbers of their sequences."""


class Learned:
    """acceptance: what confidences are worth. gate: whom sources pay for. asking: by source, for
    how many tokens it is worth asking."""

    def __init__(self) -> None:
        self.acceptance = Acceptance()
        self.gate = Gate()
        self.asking: dict[str, Asking] = defaultdict(Asking)
        self._profiles: dict[tuple[str, bool], list[float]] = defaultdict(list)

    def usual(self, offer: Offer, count: int) -> list[float]:
        """The gains that a dense source's earlier drafts had, by place."""
        profile = self._profiles[drafter_of(offer.proposal), offer.masked]
        while len(profile) < count:
            profile.append((profile[-1] if profile else 1.0) * _PROFILE_START)
        return profile[:count]

    def remember(self, offers: Offers) -> None:
        """Once the budget stands: later ones may know what this step's dense drafts promise."""
        for _, offer in offers:
            proposal = offer.proposal
            if proposal.draft_probs is None:
                continue
            profile = self._profiles[drafter_of(proposal), offer.masked]
            for place, alive in enumerate(offer.survival[: len(profile)]):
                gain = 0.0 if proposal.sources[place] == FORCED else alive
                profile[place] += _PROFILE_RATE * (gain - profile[place])

    def promised(self, offers: Offers) -> None:
        """What the drafts of each source promise, also of those that had nothing to offer."""
        drafts: dict[str, list[Seen]] = defaultdict(list)
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, offer in offers:
            for source, (limit, _) in offer.drew.items():
                gain = gains_of(offer, source, offer.gain)
                if gain is not None:
                    paid = None if offer.paid is None else offer.paid[: len(gain)]
                    drafts[source].append(Seen(limit, gain, paid))
                    numbers[source].append(number)
        for source, seen in drafts.items():
            shares = self.asking[source].saw(seen)
            for number, share in zip(numbers[source], shares, strict=True):
                self.gate.account(number, source).promised(share)

    def book(self, offers: Offers, own_s: Seq[Seq[float]], row_s: float, share_s: float) -> None:
        """What each ask saved: the tokens it is expected to bring at ``share_s``, what a sequence's
        part of a plain step costs, less its rows at ``row_s`` beside what they cost each offer."""
        asked: dict[tuple[str, int], float] = {}
        for (number, offer), costs in zip(offers, own_s, strict=True):
            width = offer.tested
            token_row_s = row_s + (sum(costs[:width]) / width if width else 0.0)
            brought = brought_by(offer.proposal, offer.gain[:width])
            for source in offer.asked:
                key = source, offer.limit
                if key not in asked:
                    asked[key] = self.asking[source].one_more_s(offer.limit)
                tokens, rows = brought.get(source, (0.0, 0))
                self.gate.booked(
                    number,
                    source,
                    tokens=tokens,
                    profit_s=tokens * share_s - rows * token_row_s - asked[key],
                    cost_s=asked[key],
                    plain_s=share_s,
                )

    def close(self, number: int) -> None:
        self.acceptance.close(number)
        self.gate.close(number)
