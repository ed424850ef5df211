"""The ``suffix`` drafter: what followed the longest suffix of the text when it occurred before.

It looks into the sequence's own text (prompt and output) and the earlier turns of its session. The
idea is SuffixDecoding's (arXiv 2411.04975); here over suffix automata, and confidences are learnt.
"""

from __future__ import annotations

from collections.abc import Sequence

from .automaton import ROOT, Cursor, SuffixAutomaton
from .base import EMPTY, DraftView, Proposal
from .calibration import Calibration, Evidence
from .memory import SessionStore

_WINDOW = 256
"""The longest match with earlier turns that is looked for at a sequence's opening."""


class SuffixDrafter:
    """A ``Drafter`` without a model. Its drafts are one-hot.

    min_match: tokens that must match before anything is drafted. min_survival: a draft ends where
    the product of its confidences falls below it. max_tokens: how much of a sequence's text is
    indexed when it opens, counted from the end. store: earlier turns; its own by default.
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
    ):
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

    def _propose(self, view: DraftView, limit: int) -> Proposal:
        tokens, evidence = self._draft(view, limit)
        confidence: list[float] = []
        survival = 1.0
        for kind in evidence:
            estimate = self._calibration.confidence(kind)
            survival *= estimate
            if survival < self._min_survival:
                break
            confidence.append(estimate)
        count = len(confidence)
        if count == 0:
            return EMPTY
        return Proposal(tuple(tokens[:count]), (self.name,) * count, tuple(confidence))

    def _draft(self, view: DraftView, limit: int) -> tuple[list[int], list[Evidence]]:
        automaton, state, matched = self._texts[view.sequence_id].match()
        if matched < self._min_match:
            return [], []
        return _follow(automaton, state, matched, limit)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        came = view.tokens[len(view.tokens) - committed :]
        if self.name in proposal.sources:
            self._learn(view, proposal, came)
        self._texts[view.sequence_id].extend(came)

    def _learn(self, view: DraftView, proposal: Proposal, came: Sequence[int]) -> None:
        # The index has not seen ``came`` yet, so this is the draft that was proposed. Forced tokens
        # in ``proposal`` stand where the draft spelt them, or after its end: places agree.
        _, evidence = self._draft(view, len(proposal))
        for i, kind in enumerate(evidence[: len(came)]):
            stands = came[i] == proposal.tokens[i]
            if proposal.sources[i] == self.name:
                self._calibration.record(kind, stands)
            if not stands:
                break

    def close(self, view: DraftView) -> None:
        text = self._texts.pop(view.sequence_id)
        self._store.keep(view.cache_scope, view.session, view.tokens, text.own)


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

    def match(self) -> tuple[SuffixAutomaton, int, int]:
        """The longest suffix of the text that was followed by something before: where, how long.

        In the text itself that is the longest suffix that also ends elsewhere. Where an earlier
        turn knows no more, the sequence's own text decides.
        """
        own = self.own
        state = max(own.link[own.last], ROOT)
        best = own, state, own.length[state]
        if self._earlier is None:
            return best
        state, matched = self._earlier.where()
        found = _continued(self._earlier.automaton, state, matched)
        return found if found[2] > best[2] else best


def _continued(
    automaton: SuffixAutomaton, state: int, matched: int
) -> tuple[SuffixAutomaton, int, int]:
    """The longest suffix of the match after which a text did not simply end."""
    while state != ROOT and max(automaton.children[state], default=-1) < 0:
        state = automaton.link[state]
        matched = automaton.length[state]
    return automaton, state, matched


def _follow(
    automaton: SuffixAutomaton, state: int, matched: int, limit: int
) -> tuple[list[int], list[Evidence]]:
    """At most ``limit`` tokens from ``state`` on, each the most frequent continuation (of equals
    the latest), with what speaks for it; ends where a text ends."""
    children, count, end = automaton.children, automaton.count, automaton.end
    tokens: list[int] = []
    evidence: list[Evidence] = []
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
        tokens.append(best)
        evidence.append(Evidence(matched, best_key[0], places))
        state = children[state][best]
        matched += 1
    return tokens, evidence
