"""What the engine's own decisions do to the law of sampled text: ``Governor``, not its parts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence as Seq
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import FORCED, Proposal
from agentspec.engine.governor import Governor
from agentspec.engine.offers import Call
from agentspec.engine.policy import Policy
from agentspec.engine.sequence import Sequence
from agentspec.engine.slot import Slot
from agentspec.settings import EngineSettings
from tests.engine.core.world import make
from tests.engine.draft.test_law import GRAMMARS, AppendixA, AppendixAWorld
from tests.engine.draft.toyworld import Cut, World, distance, emitted
from tests.engine.scheduler.test_forms import APPENDIX, EXACT, JAGGED, Telling

WIDE = CostCurve.of([1, 2, 3, 4, 5, 6, 7], [1.0, 1.2, 1.9, 1.95, 2.0, 2.6, 2.7])
LIMIT = 3
SETTINGS = EngineSettings(max_sequences=8, max_draft_tokens=LIMIT)


def widths(governor: Governor, proposals: Seq[Proposal]) -> list[int]:
    """A step of so many sequences, each with its draft: how much of each is verified."""
    slots = []
    for number, proposal in enumerate(proposals):
        sequence = Sequence.of(make(f"r{number}"), number, (), lambda: 0)
        sequence.computed = len(sequence.tokens) - 1
        slots.append(Slot(sequence, 1, draft_limit=LIMIT, proposal=proposal))
    governor.begin(slots, slots)
    lengths = [len(proposal) for proposal in proposals]
    governor.asked(slots, [LIMIT] * len(slots), Call("x", 1e-9, lengths))
    governor.cut(slots)
    return [len(slot.proposal) for slot in slots]


def drawn(tokens: Seq[tuple[float, bool]], *, dense: bool = True) -> Proposal:
    """tokens: of each its confidence, and whether a grammar forces it."""
    return Proposal(
        tuple(range(len(tokens))),
        tuple(FORCED if forced else "x" for _, forced in tokens),
        tuple(1.0 if forced else confidence for confidence, forced in tokens),
        torch.zeros(len(tokens), 3) if dense else None,
    )


def experienced(curve: CostCurve, seen: Seq[Proposal]) -> Governor:
    """One that has seen these drafts."""
    governor = Governor(curve, Policy(), SETTINGS)
    for proposal in seen:
        widths(governor, [proposal])
    return governor


HISTORIES = {
    "nothing": [],
    "good drafts": [drawn([(0.95, False)] * 3)] * 20,
    "poor drafts": [drawn([(0.5, False), (0.2, False), (0.1, False)])] * 20,
}
NEIGHBOURS = {
    "alone": [],
    "beside a sampled draft": [drawn([(0.8, False), (0.5, False), (0.9, False)])],
    "beside a one-hot draft": [drawn([(0.7, False), (1.0, True), (0.4, False)], dense=False)],
}


def governed(curve: CostCurve, history: str, neighbours: str) -> Cut:
    def cut(view, proposal: Proposal) -> int:
        governor = experienced(curve, HISTORIES[history])
        return widths(governor, [proposal, *NEIGHBOURS[neighbours]])[0]

    return cut


@pytest.fixture(params=["with tails", "as in the paper"])
def tails(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts with a test of the token behind them, as the engine has them, and without."""
    if request.param == "as in the paper":
        monkeypatch.setattr(Proposal, "tail_at", lambda self, length: None)


@pytest.mark.usefixtures("tails")
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_the_engines_cuts_keep_the_law(history: str, neighbours: str):
    world = World(vocab=3)
    cut = governed(WIDE if NEIGHBOURS[neighbours] else JAGGED, history, neighbours)
    got = emitted(world, lambda dice: Telling(3, dice, LIMIT), LIMIT, cut)
    assert distance(got, world.plain(LIMIT)) < EXACT


@pytest.mark.parametrize(
    ("grammar", "curve", "neighbours"),
    [
        ("masked", JAGGED, "alone"),
        ("forced inside", WIDE, "beside a one-hot draft"),
    ],
)
def test_the_engines_cuts_keep_the_law_within_a_grammar(
    grammar: str, curve: CostCurve, neighbours: str
):
    world = World(vocab=3, grammar=GRAMMARS[grammar](3))
    cut = governed(curve, "nothing", neighbours)
    got = emitted(world, lambda dice: Telling(3, dice, LIMIT), LIMIT, cut)
    assert distance(got, world.plain(LIMIT)) < EXACT


def _first_of_the_counter_example() -> float:
    world = AppendixAWorld(vocab=2, prompt=(0,))
    cut = governed(APPENDIX, "nothing", "alone")
    both = emitted(world, lambda dice: AppendixA(2, dice), 2, cut)
    return sum(p for text, p in both.items() if text[0] == 0)


@pytest.mark.usefixtures("tails")
def test_the_papers_counter_example_in_the_engine():
    assert _first_of_the_counter_example() == pytest.approx(0.7, abs=1e-12)


def test_an_engine_that_searches_freely_fails_the_counter_example(monkeypatch: pytest.MonkeyPatch):
    """So the test above can tell."""
    monkeypatch.setattr(Proposal, "tail_at", lambda self, length: None)
    bid = Governor._bid

    def naive(self, slot, refund):
        return replace(bid(self, slot, refund), dense=False, expected=None)

    monkeypatch.setattr(Governor, "_bid", naive)
    assert _first_of_the_counter_example() == pytest.approx(0.85, abs=1e-12)


TOKEN = st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 1.0]), st.booleans())
TOKENS = st.lists(TOKEN, max_size=LIMIT)
STEP = CostCurve.of([1, 2, 3, 4], [1.0, 1.9, 1.95, 2.0])
CURVES = st.lists(st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]), min_size=12, max_size=12).map(
    lambda steps: CostCurve.of(range(1, 13), [1.0 + t for t in itertools.accumulate(steps)])
)


@given(TOKENS, TOKENS, st.integers(0, LIMIT), st.lists(TOKENS, max_size=2), CURVES, st.booleans())
@example([(0.9, False)], [(0.9, False)], 1, [], STEP, True)
def test_nothing_behind_a_token_decides_whether_it_is_verified(
    tokens, other, kept, neighbours, curve, dense
):
    """Neither confidences nor what is forced there, nor where the draft ends: they hang on it."""
    changed = [*tokens[:kept], *other][:LIMIT]
    rest = [drawn(neighbour, dense=dense) for neighbour in neighbours]
    first, second = (
        widths(experienced(curve, []), [drawn(draft), *rest])[0] for draft in (tokens, changed)
    )
    seen = min(kept, len(tokens), len(changed))
    assert min(first, seen) == min(second, seen)


@pytest.mark.parametrize(("forced_s", "verified"), [(0.0, 3), (0.2, 0)])
def test_a_forced_token_has_a_price_of_its_own(forced_s: float, verified: int):
    """It is taken without a mask and without a row of logits: python's part of it is small."""
    curve = CostCurve.of([1, 2, 3, 4], [1.0, 1.1, 1.2, 1.3])
    governor, draw = experienced(curve, []), random.Random(1)
    for _ in range(400):
        sequences, free, masked, forced = (draw.randint(1, 8) for _ in range(4))
        python_s = 0.01 * sequences + 0.2 * (free + masked) + forced_s * forced
        governor.costs.rest.saw(python_s, 1, sequences, free, masked, forced)
    span = drawn([(0.6, False), (1.0, True), (1.0, True)], dense=False)
    assert widths(governor, [span]) == [verified]
