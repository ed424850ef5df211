"""How many tokens a source is asked for: what calls cost, what drafts bring, what pays."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.asking import Asking, Scene, Seen
from agentspec.engine.draft.base import FORCED, Proposal
from agentspec.engine.draft_cost import DraftCost, Texts, read
from agentspec.engine.offers import Offer, gains_of
from agentspec.engine.yields import LEVELS, Yields, evened


@pytest.mark.parametrize(
    "parts", [(2.0, 0.0, 0.0, 0.0), (0.0, 0.3, 0.0, 0.0), (1.0, 0.1, 1.5, 0.02)]
)
def test_the_parts_of_a_calls_cost_are_found(parts: tuple[float, ...]):
    """A block, a lookup, a model that drafts token by token; one call in ten is held up."""
    cost, draw = DraftCost(), random.Random(1)
    a, b, c, d = parts
    for _ in range(600):
        n, w = draw.choice((1, 8, 32)), draw.choice((1, 2, 4, 7))
        seconds = a + b * n + c * w + d * n * w
        cost.saw(seconds * draw.uniform(0.98, 1.02), n, w)
    for n, w in ((1, 1), (4, 7), (32, 3)):
        assert cost.seconds(n, w) == pytest.approx(a + b * n + c * w + d * n * w, rel=0.05)


def test_what_cannot_be_told_apart_is_shared():
    """Seen at one width only, a call of a token is dearer than its part and cheaper than all."""
    cost = DraftCost()
    for _ in range(20):
        cost.saw(6.0, 8, 6)
    assert cost.seconds(8, 6) == pytest.approx(6.0, rel=0.01)
    assert 1.0 < cost.seconds(8, 1) < 6.0
    for _ in range(3):
        cost.saw(1.0, 8, 1)
    assert cost.seconds(8, 1) == pytest.approx(1.0, rel=0.1)


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(1, 64), st.integers(1, 16)), max_size=30))
def test_no_part_is_negative(seen):
    cost = DraftCost()
    for call in seen:
        cost.saw(*call)
    least = cost.seconds(0, 0)
    assert least >= 0.0 and cost.seconds(1, 0) >= least and cost.seconds(0, 1) >= least


def test_yields_are_means_by_place_and_level():
    yields = Yields()
    for gains in ((0.95, 0.25), (0.35,), ()):
        yields.saw(gains, 2)
    yields.saw((1.3 / 3,), 1)
    first, second, third = yields.places(3)
    assert first.gains[0] == pytest.approx(1.3 / 3)
    assert first.rows[LEVELS.index(5)] == pytest.approx(1 / 4)
    assert second.rows == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
    assert 0.0 < third.gains[0] < second.gains[0], "never drafted: goes on as before it"


def test_old_drafts_fade():
    yields = Yields()
    for gain in [0.9] * 400 + [0.1] * 400:
        yields.saw((gain,), 1)
        yields.faded(1)
    assert yields.places(1)[0].gains[0] == pytest.approx(0.1, abs=0.01)


def test_a_place_that_is_not_asked_for_follows_the_one_before_it():
    """Half of what stood at the first stood at the second; then the first is asked for alone."""
    yields = Yields()
    for gains, width in [((0.8, 0.4), 2)] * 20 + [((0.3,), 1)] * 400:
        yields.saw(gains, width)
        yields.faded(1)
    first, second = yields.places(2)
    assert first.gains[0] == pytest.approx(0.3, abs=0.01)
    assert second.gains[0] == pytest.approx(0.15, abs=0.01)


def _step(asking: Asking, scene: Scene, alive: float, call_s, most: int = 7) -> int:
    """Ask once; each token of a draft promises ``alive`` times what the one before it does."""
    width, _ = asking.width(scene.sequences, float(scene.sequences), most, scene)
    if width:
        asking.called(call_s(scene.sequences, width), scene.sequences, width, width)
        gains = [alive**k for k in range(1, width + 1)]
        asking.saw([Seen(width, gains)] * scene.sequences)
    return width


def _scene(sequences: int, plain_s: float = 10.0) -> Scene:
    """Passes of up to 64 rows cost alike, as on a GPU."""
    return Scene(sequences, sequences, plain_s, lambda rows: 10.0 + max(0, rows - 64) * 0.5, _free)


def _free(width: int) -> float:
    return 0.0


def _best(scene: Scene, alive: float, call_s) -> int:
    def speed(width: int) -> float:
        tokens = sum(alive**k for k in range(width + 1)) * scene.sequences
        rows = scene.rows * (1 + width)
        draft_s = call_s(scene.sequences, width) if width else 0.0
        return tokens / (scene.base(rows) + draft_s)

    return max(range(8), key=speed)


@pytest.mark.parametrize("alive", [0.3, 0.62, 0.9])
@pytest.mark.parametrize("sequences", [1, 4])
def test_a_dear_source_is_asked_for_as_many_tokens_as_pay(alive: float, sequences: int):
    """Each drafted token costs a sixth of a pass: the width is the best by enumeration."""

    def call_s(n: int, width: int) -> float:
        return 0.5 + 1.7 * width

    scene, asking = _scene(sequences), Asking()
    widths = [_step(asking, scene, alive, call_s) for _ in range(300)][100:]
    usual = max(set(widths), key=widths.count)
    assert abs(usual - _best(scene, alive, call_s)) <= (1 if alive == 0.9 else 0)


def test_a_block_is_asked_for_whole():
    asking = Asking()
    widths = [_step(asking, _scene(4), 0.8, lambda n, w: 2.0) for _ in range(60)]
    assert set(widths[30:]) == {7}


def test_a_source_that_does_not_pay_costs_a_bounded_share():
    """All draft and nobody is right: half a percent once that is known, however many ask."""
    asking, scene, spent = Asking(), _scene(32), 0.0
    for step in range(2000):
        width = _step(asking, scene, 0.02, lambda n, w: 6.0 * w)
        if step >= 200:
            spent += 6.0 * width
    assert 0.0 < spent <= 0.006 * 1800 * scene.plain_s


def test_a_change_of_load_wakes_a_source_at_once():
    """At 64 sequences rows are dear and it sleeps; alone again it is asked in the next step."""

    def call_s(n: int, width: int) -> float:
        return 2.0 * width

    asking = Asking()
    crowd = Scene(64, 64, 10.0, lambda rows: 10.0 + max(0, rows - 64) * 0.5, _free)
    asleep = [_step(asking, crowd, 0.7, call_s) for _ in range(300)]
    assert sum(width > 0 for width in asleep[100:]) < 20
    assert _step(asking, _scene(1), 0.7, call_s) > 0


def test_a_gain_belongs_to_the_source_that_drafted_it():
    offer = Offer(Proposal((1, 2, 3), ("x", FORCED, "y"), (0.5, 1.0, 0.5)), False)
    offer.drew = {"x": (4, 2), "z": (4, 0), "w": (4, 3)}
    gain = (0.0, 0.5, 0.25)
    assert gains_of(offer, "x", gain) == (0.0, 0.5)
    assert gains_of(offer, "z", gain) == ()
    assert gains_of(offer, "w", gain) is None, "another source's draft was taken"
    offer.proposal = Proposal()
    assert gains_of(offer, "w", ()) == (), "nothing of it was legal"


def test_behind_another_draft_a_call_has_to_pay():
    """Tokens are cheaper there, and what stands before has to stand."""
    scene = Scene(1, 1, 1.0, lambda rows: 1.0 + 0.02 * (rows - 1), lambda width: 0.0)

    def source(call_s: float) -> Asking:
        asking = Asking()
        for _ in range(40):
            width, _ = asking.width(1, 1.0, 4, scene)
            if width:
                asking.called(call_s, 1, width, width)
                asking.saw([Seen(width, (0.6, 0.36, 0.2, 0.1)[:width])])
        return asking

    assert Asking().pays_behind(0.1, 0.1, scene), "its first calls tell what it costs"
    for call_s, pays in ((1e-4, True), (0.1, True), (0.35, False), (3.0, False)):
        assert source(call_s).pays_behind(0.6, 1.0 / 3.0, scene) is pays
    assert source(0.35).pays_behind(1.0, 1.0, scene)
    assert not source(3.0).pays_behind(1.0, 1.0, scene), "nor does it from the beginning"


def test_reading_a_prompt_is_part_of_what_calls_cost():
    """A call costs 2; every twentieth begins a text of 500 tokens, which takes 50 more."""
    cost, texts = DraftCost(), Texts()
    known = 0
    for step in range(600):
        fresh = step % 20 == 0
        length = 500 if fresh else known + 2
        unread, known = read(0 if fresh else known, length)
        cost.saw(2.0 + (50.0 if fresh else 0.0), 1, 4, unread)
        texts.step(500 if fresh else 0)
    assert cost.seconds(1, 4) == pytest.approx(2.0, rel=0.1)
    assert cost.seconds(1, 4, texts.unread) == pytest.approx(2.0 + 50.0 / 20, rel=0.1)


def test_a_long_text_is_read_in_pieces():
    assert read(0, 1000) == (496, 512)
    assert read(512, 1001) == (473, 1001)
    assert read(1001, 1004) == (0, 1004)


def test_asks_in_vain_are_charged_what_they_took():
    """The source looks cheap, but whoever asks it seldom pays forty times that."""
    asking, scene, spent = Asking(), _scene(1), 0.0
    for step in range(6000):
        width, trying = asking.width(1, 1.0, 7, scene)
        if not width:
            continue
        seconds = 100.0 if trying else 2.5
        asking.called(seconds, 1, width, width)
        asking.saw([Seen(width, [0.02] * width)])
        spent += seconds if step >= 200 else 0.0
    assert 0.0 < spent <= 0.0025 * 5800 * scene.plain_s + 100.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12))
def test_gains_are_evened_without_a_loss(tokens):
    gains, paid = [gain for gain, _ in tokens], [rows for _, rows in tokens]
    found = evened(gains, paid)
    assert sum(found) == pytest.approx(sum(gains))
    worth = [gain / rows for gain, rows in zip(found, paid, strict=True) if rows > 1e-6]
    assert all(b <= a * (1 + 1e-6) + 1e-6 for a, b in zip(worth, worth[1:], strict=False))


def test_a_spans_rows_are_counted_where_its_gain_is():
    """One token in ten stands, and a span of three follows it: four rows for a tenth of a token."""
    yields = Yields()
    yields.saw((0.0, 0.0, 0.0, 0.1), 4, [1.0, 0.9, 0.9, 0.9])
    places = yields.places(4)
    for level in range(len(LEVELS)):
        rows = sum(place.rows[level] for place in places)
        assert sum(place.gains[level] for place in places) == pytest.approx(rows * 0.1 / 3.7)
    assert sum(place.rows[0] for place in places) == pytest.approx(3.7)
