"""The two safe forms of cutting sampled drafts, by exact enumeration of what is emitted."""

from __future__ import annotations

import pytest

from agentspec.engine.budget import Bid, choose, survivals
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import Proposal
from tests.engine.draft.test_law import AppendixA, AppendixAWorld, distance, emitted
from tests.engine.draft.toyworld import Dense, World

EXACT = 1e-9
JAGGED = CostCurve.of([1, 2, 3, 4, 5], [1.0, 1.9, 1.95, 2.6, 2.7])
APPENDIX = CostCurve.of([1, 2, 3], [1.0, 1 / 0.5, 1 / 0.45])


def form_a(curve: CostCurve):
    def cut(view, proposal: Proposal) -> int:
        bid = Bid(gain=survivals(proposal.confidence), dense=True)
        return choose([bid], 1, curve.seconds)[0]

    return cut


def form_b(curve: CostCurve, expected: list[float], neighbour: tuple[float, ...] = ()):
    """Older confidences say how many; the draft's own, beside a neighbour's, say which."""

    def cut(view, proposal: Proposal) -> int:
        own = Bid(gain=survivals(proposal.confidence), dense=True, expected=expected)
        other = Bid(gain=neighbour, dense=True, expected=neighbour)
        return choose([own, other], 2, curve.seconds)[0]

    return cut


def naive(curve: CostCurve):
    """The global search over the draft's own confidences: what both forms avoid."""

    def cut(view, proposal: Proposal) -> int:
        return choose([Bid(gain=survivals(proposal.confidence))], 1, curve.seconds)[0]

    return cut


class Telling(Dense):
    """Its confidences look at earlier tokens of the draft, as a confidence head does."""

    def _one(self, view, limit):
        draft = super()._one(view, limit)
        odds = {0: 0.95, 1: 0.3, 2: 0.6}
        confidence = [0.7, *(odds[token] for token in draft.tokens)][: len(draft)]
        return Proposal(draft.tokens, draft.sources, tuple(confidence), draft.draft_probs)


CUTS = {
    "A": form_a(JAGGED),
    "A, appendix": form_a(APPENDIX),
    "B": form_b(JAGGED, [0.8, 0.7, 0.2]),
    "B, much hoped for": form_b(JAGGED, [1.0, 1.0, 1.0]),
    "B, beside another draft": form_b(JAGGED, [0.8, 0.6, 0.4], (0.75, 0.4, 0.3)),
    "B, nothing hoped for": form_b(JAGGED, [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_both_forms_keep_the_law(cut: str, temperature: float):
    world = World(vocab=3, temperature=temperature)
    got = emitted(world, lambda dice: Telling(3, dice, 3), 3, CUTS[cut])
    assert distance(got, world.plain(3)) < EXACT


@pytest.fixture
def plain_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts without a test of the token behind them, as the paper has them."""
    monkeypatch.setattr(Proposal, "tail_at", lambda self, length: None)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.usefixtures("plain_cuts")
def test_both_forms_need_no_tail(cut: str):
    world = World(vocab=3)
    got = emitted(world, lambda dice: Telling(3, dice, 3), 3, CUTS[cut])
    assert distance(got, world.plain(3)) < EXACT


def _bias(cut, length: int) -> float:
    world = World(vocab=3)
    got = emitted(world, lambda dice: Telling(3, dice, length), 3, cut)
    return distance(got, world.plain(3))


STEPS = (JAGGED, APPENDIX, CostCurve.of([1, 2, 3, 4], [1.0, 1.75, 1.8, 1.9]))


@pytest.mark.usefixtures("plain_cuts")
def test_the_free_search_does_not_keep_it():
    """So the tests above can tell."""
    assert max(_bias(naive(curve), 2) for curve in STEPS) > 0.005


def test_a_tail_mends_a_look_at_the_token_itself_and_no_further():
    """A cut that knows x_k is exact where x_k is tested; one that knows x_(k+1) is not."""

    def own(view, proposal: Proposal) -> int:
        return next((k for k, token in enumerate(proposal.tokens) if token == 1), len(proposal))

    def next_one(view, proposal: Proposal) -> int:
        return next((k - 1 for k, t in enumerate(proposal.tokens) if t == 1 and k), len(proposal))

    assert _bias(own, 3) < EXACT
    assert _bias(next_one, 3) > 0.005


@pytest.mark.usefixtures("plain_cuts")
def test_without_the_tail_the_look_at_the_token_is_biased():
    def own(view, proposal: Proposal) -> int:
        return next((k for k, token in enumerate(proposal.tokens) if token == 1), len(proposal))

    assert _bias(own, 3) > 0.005


@pytest.mark.usefixtures("plain_cuts")
@pytest.mark.parametrize("expected", [[0.8, 0.8], [0.8, 0.0], [0.2, 0.1], [1.0, 1.0]])
def test_the_papers_counter_example_with_older_confidences(expected: list[float]):
    world = AppendixAWorld(vocab=2, prompt=(0,))

    def first(cut) -> float:
        both = emitted(world, lambda dice: AppendixA(2, dice), 2, cut)
        return sum(p for text, p in both.items() if text[0] == 0)

    def alone(view, proposal: Proposal) -> int:
        bid = Bid(gain=survivals(proposal.confidence), dense=True, expected=expected)
        return choose([bid], 1, APPENDIX.seconds)[0]

    assert first(alone) == pytest.approx(0.7, abs=1e-12)
    assert first(form_a(APPENDIX)) == pytest.approx(0.7, abs=1e-12)
    assert first(naive(APPENDIX)) == pytest.approx(0.85, abs=1e-12)


def test_older_confidences_see_behind_a_step_of_the_curve():
    """A row that costs much and two that cost nothing: the walk stops at the first."""
    alive = [0.9, 0.9, 0.9]
    curve = CostCurve.of([1, 2, 3, 4], [1.0, 2.0, 2.0, 2.0])
    assert choose([Bid(gain=alive, dense=True)], 1, curve.seconds) == [0]
    assert choose([Bid(gain=alive, dense=True, expected=alive)], 1, curve.seconds) == [3]


def test_how_many_is_decided_by_older_confidences_alone():
    """And which, by the current ones: the budget of two drafts goes to the better one."""
    hoped = [0.6, 0.5, 0.4]
    curve = CostCurve.of([2, 3, 4, 5, 6, 7, 8], [1.0, 1.05, 1.1, 1.15, 2.0, 3.0, 4.0])
    for good, bad in (([0.9, 0.8, 0.7], [0.1, 0.1, 0.1]), ([0.3] * 3, [0.2] * 3)):
        bids = [Bid(gain=g, dense=True, expected=hoped) for g in (good, bad)]
        assert choose(bids, 2, curve.seconds) == [3, 0]


def test_ties_go_to_the_smaller_place():
    """Saturated confidences: no draft's tail comes before another one's head."""
    sure = [1.0, 1.0, 1.0]
    curve = CostCurve.of([3, 4, 5, 6, 7, 8], [1.0, 1.01, 1.02, 1.03, 9.0, 99.0])
    for expected in (sure, None):
        bids = [Bid(gain=sure, dense=True, expected=expected) for _ in range(3)]
        assert choose(bids, 3, curve.seconds) == [1, 1, 1]


def test_the_overhead_is_counted_not_timed():
    """32 sequences of 16 drafted tokens: the cost curve is asked at most so often a candidate."""
    asked = 0

    def base(rows: int) -> float:
        nonlocal asked
        asked += 1
        return 1.0 + 0.01 * rows

    bids = [Bid(gain=[0.9**k for k in range(1, 17)], own_s=(0.0001,)) for _ in range(32)]
    assert sum(choose(bids, 32, base)) > 0
    assert asked <= 513
