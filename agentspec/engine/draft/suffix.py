"""The ``suffix`` drafter: what followed the longest suffix of the text when it occurred before.

It looks into the sequence's own text (prompt and output) and the earlier turns of its session. The
idea is SuffixDecoding's (arXiv 2411.04975); here over suffix automata, and confidences are learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .automaton import ROOT, Cursor, SuffixAutomaton
from .base import EMPTY, DraftView, Proposal
from .calibration import Calibration, Evidence
from .memory import SessionStore
from .tree import Branch, grow

_WINDOW = 256
"""The longest match with earlier turns that is looked for at a sequence's opening."""
_LEAST_BEHIND = 2
"""Tokens that must match behind another source's draft: of it, mostly."""


class SuffixDrafter:
    """A ``Drafter`` without a model. Its drafts are one-hot.

    min_match: tokens that must match before anything is drafted. min_survival: a draft ends where
    the product of its confidences falls below it. max_tokens: how much of a sequence's text is
    indexed when it opens, counted from the end. store: earlier turns; its own by default.
    branches: most continuations of one place that are drafted; above 1 drafts are trees.
    """

    name = "suffix"
    taps: tuple[int, ...] = ()

    def __init__(
        self,
        *,
        min_match: int = 1,
        min_survival: float = 0.1,
        max_tokens: int = 65_536,
        store: SessionStore | None = None,
        branches: int = 1,
    ):
        assert branches >= 1
        self._branches = branches
        self._min_match = min_match
        self._min_survival = min_survival
        self._max_tokens = max_tokens
        self._store = SessionStore() if store is None else store
        self._calibration = Calibration()
        self._texts: dict[int, _Text] = {}

    def open(self, view: DraftView) -> None:
        earlier = self._store.get(view.cache_scope, view.session)
        known = 0 if earlier is None else earlier.known(view.tokens)
        start = max(known, len(view.tokens) - self._max_tokens)
        self._texts[view.sequence_id] = _Text(
            SuffixAutomaton(view.tokens[start:]),
            None if earlier is None else Cursor(earlier.automaton),
            view.tokens[-_WINDOW:],
        )

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        return [self._propose(view, limit) for view, limit in zip(views, limits, strict=True)]

    def propose_behind(
        self, views: Sequence[DraftView], heads: Sequence[Proposal], limits: Sequence[int]
    ) -> list[Proposal]:
        """See ``chaining.Follower``: what followed the head's end, wherever that occurred."""
        found: list[Proposal] = []
        for view, head, limit in zip(views, heads, limits, strict=True):
            place = self._texts[view.sequence_id].match()
            for token in head.tokens:
                place = place.moved(token)
            enough = place.matched >= max(self._min_match, _LEAST_BEHIND)
            found.append(self._chain(place, limit) if enough else EMPTY)
        return found

    def _propose(self, view: DraftView, limit: int) -> Proposal:
        start = self._texts[view.sequence_id].match()
        if start.matched < self._min_match:
            return EMPTY
        if self._branches == 1:
            return self._chain(start, limit)
        return grow(self.name, start, self._ways, limit, self._min_survival)

    def _chain(self, start: Place, limit: int) -> Proposal:
        """What ``grow`` makes of one way on, in a third of the time."""
        automaton, state, matched = start
        children, count, end = automaton.children, automaton.count, automaton.end
        tokens: list[int] = []
        confidence: list[float] = []
        survival = 1.0
        while len(tokens) < limit:
            best, best_key, places = -1, (0, 0), 0
            for token, child in children[state].items():
                if token >= 0:
                    key = count[child], end[child]
                    places += key[0]
                    if key > best_key:
                        best, best_key = token, key
            if best < 0:
                break
            estimate = self._calibration.confidence(Evidence(matched, best_key[0], places))
            survival *= estimate
            if survival < self._min_survival:
                break
            tokens.append(best)
            confidence.append(estimate)
            state = children[state][best]
            matched += 1
        return Proposal(tuple(tokens), (self.name,) * len(tokens), tuple(confidence))

    def _ways(self, place: Place) -> list[Branch[Place]]:
        """What is drafted after a place; confidences add up to 1 at most."""
        left, found = 1.0, []
        for token, evidence, after in place.ways(self._branches):
            estimate = min(self._calibration.confidence(evidence), left)
            left -= estimate
            found.append(Branch(token, estimate, after))
        return found

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        came = view.tokens[len(view.tokens) - committed :]
        if self.name in proposal.sources:
            self._learn(self._texts[view.sequence_id].match(), proposal, came)
        self._texts[view.sequence_id].extend(came)

    def _learn(self, place: Place, proposal: Proposal, came: Sequence[int]) -> None:
        # The index has not seen ``came`` yet, so this is where the draft that was proposed began.
        # Forced tokens in ``proposal`` stand where the draft spelt them, or after its end.
        node = -1
        for token in came:
            kin = {proposal.tokens[n]: n for n in proposal.below(node)}
            for drafted, evidence, _ in place.ways(self._branches):
                if drafted in kin and proposal.sources[kin[drafted]] == self.name:
                    self._calibration.record(evidence, drafted == token)
            after = place.after(token)
            if token not in kin or after is None:
                break
            node, place = kin[token], after

    def close(self, view: DraftView) -> None:
        text = self._texts.pop(view.sequence_id)
        self._store.keep(view.cache_scope, view.session, view.tokens, text.own)


class SuffixTreeDrafter(SuffixDrafter):
    """The same with branches: several continuations at once, as a tree."""

    name = "suffix_tree"

    def __init__(self, *, branches: int = 3, **options: Any):
        super().__init__(branches=branches, **options)


class _Text:
    """The places where a sequence's continuation is looked up."""

    def __init__(self, own: SuffixAutomaton, earlier: Cursor | None, recent: Sequence[int]):
        self.own = own
        self._earlier = earlier
        if earlier is not None:
            earlier.feed(recent)

    def extend(self, tokens: Sequence[int]) -> None:
        self.own.extend(tokens)
        if self._earlier is not None:
            self._earlier.feed(tokens)

    def match(self) -> Place:
        """The longest suffix of the text that was followed by something before.

        In the text itself that is the longest suffix that also ends elsewhere. Where an earlier
        turn knows no more, the sequence's own text decides.
        """
        own = self.own
        state = max(own.link[own.last], ROOT)
        best = Place(own, state, own.length[state])
        if self._earlier is None:
            return best
        state, matched = self._earlier.where()
        found = _continued(self._earlier.automaton, state, matched)
        return found if found.matched > best.matched else best


class Place(NamedTuple):
    """A state of an automaton, and how many tokens of the text, drafted ones too, led to it."""

    automaton: SuffixAutomaton
    state: int
    matched: int

    def ways(self, most: int) -> list[tuple[int, Evidence, Place]]:
        """At most so many continuations, the most frequent first (of equals the latest), each with
        what speaks for it; none where a text ends."""
        count, end = self.automaton.count, self.automaton.end
        known = [
            (count[child], end[child], token)
            for token, child in self.automaton.children[self.state].items()
            if token >= 0
        ]
        places = sum(seen for seen, _, _ in known)
        best = [max(known)] if most == 1 and known else sorted(known, reverse=True)[:most]
        children = self.automaton.children[self.state]
        return [
            (
                token,
                Evidence(self.matched, seen, places),
                Place(self.automaton, children[token], self.matched + 1),
            )
            for seen, _, token in best
        ]

    def moved(self, token: int) -> Place:
        """Where the longest match of the text with ``token`` behind it ends."""
        automaton, state, matched = self
        while state != ROOT and token not in automaton.children[state]:
            state = automaton.link[state]
            matched = automaton.length[state]
        child = automaton.children[state].get(token)
        return Place(automaton, ROOT, 0) if child is None else Place(automaton, child, matched + 1)

    def after(self, token: int) -> Place | None:
        child = self.automaton.children[self.state].get(token)
        return None if child is None else Place(self.automaton, child, self.matched + 1)


def _continued(automaton: SuffixAutomaton, state: int, matched: int) -> Place:
    """The longest suffix of the match after which a text did not simply end."""
    while state != ROOT and max(automaton.children[state], default=-1) < 0:
        state = automaton.link[state]
        matched = automaton.length[state]
    return Place(automaton, state, matched)
