"""Which option a policy takes, and how often; and that the logged chance is the real one."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from agentspec.routing.estimate import Predicted
from agentspec.routing.fleet import member_for, ranked
from agentspec.routing.learned import Learned, Pacer
from agentspec.routing.policy import Cheapest, Fastest, Fixed, Option, Policy, Slo

KNOWN = Predicted(
    ttft_s=1.0, token_s=0.02, out_tok=100.0, cached_tok=0.0, cost_nusd=1e7, met=0.95,
    accepted_length=1.0, doubt=0.1, measured=50.0, tried=100,
)  # fmt: skip


def option(name: str, *, home: bool = False, sold: bool = False, **now: float | None) -> Option:
    predicted = replace(KNOWN, **now)  # type: ignore[arg-type]
    return Option(name, predicted, predicted, home, sold)


CHEAP = option("cheap", cost_nusd=1e6, ttft_s=9.0, met=0.1)
FAST = option("fast", cost_nusd=9e7, ttft_s=0.2, met=0.99)
GOOD = option("good", cost_nusd=2e7, ttft_s=1.0, met=0.95)
ALL = [GOOD, CHEAP, FAST]


@pytest.mark.parametrize(
    ("policy", "first"),
    [(Fixed(), "good"), (Cheapest(), "cheap"), (Fastest(), "fast"), (Slo(0.9), "good")],
    ids=lambda x: getattr(x, "name", x),
)
def test_what_each_takes(policy: Policy, first: str):
    ranking = policy.rank(ALL, 1.0)
    assert ALL[ranking.order[0]].backend == first
    assert ranking.chances[ranking.order[0]] == 1.0 and sum(ranking.chances) == 1.0
    assert sorted(ranking.order) == [0, 1, 2]


def test_slo_takes_the_likeliest_where_none_is_likely():
    ranking = Slo(0.999).rank(ALL, 1.0)
    assert ALL[ranking.order[0]].backend == "fast" and "likeliest" in ranking.reason


def test_unknown_prices_are_free_at_home_and_too_dear_at_a_vendors():
    free, dear = option("free", cost_nusd=None), option("dear", cost_nusd=None, sold=True)
    order = Cheapest().rank([dear, GOOD, free], 1.0).order
    assert [[dear, GOOD, free][i].backend for i in order] == ["free", "good", "dear"]


def moving(cold_nusd: float, later_nusd: float) -> list[Option]:
    """A session at "home" for 10 units a turn, and "away", which is dearer once."""
    home = option("home", home=True, cost_nusd=10e6)
    later = replace(KNOWN, cost_nusd=later_nusd)
    return [home, Option("away", replace(KNOWN, cost_nusd=cold_nusd), later)]


@pytest.mark.parametrize(
    ("cold", "later", "turns", "first"),
    [
        (100e6, 5e6, 1.0, "home"),
        (100e6, 5e6, 10.0, "home"),  # (100 + 9 * 5) / 10 > 10
        (100e6, 5e6, 50.0, "away"),  # (100 + 49 * 5) / 50 < 10
        (9.9e6, 9.9e6, 10.0, "home"),  # not worth a move
    ],
)
def test_a_move_pays_its_cold_cache(cold, later, turns, first):
    options = moving(cold, later)
    assert options[Cheapest().rank(options, turns).order[0]].backend == first


def test_what_is_unknown_is_tried_at_the_start_of_a_session():
    new = option("new", tried=0, measured=0.0, cost_nusd=5e7)
    for policy in (Cheapest(), Fastest(), Slo(0.9)):
        assert [GOOD, new][policy.rank([GOOD, new], 5.0).order[0]].backend == "new"
        stays = [option("at", home=True), new]
        assert stays[policy.rank(stays, 5.0).order[0]].backend == "at"


def learned(seed: int = 0, exploration: float = 0.05, budget: float | None = None) -> Learned:
    return Learned(exploration, 0.05, Pacer(budget), Random(seed).random)


NEAR = [option("a", cost_nusd=10e6), option("b", cost_nusd=11e6), option("c", cost_nusd=90e6)]


def test_the_logged_chance_is_the_real_one():
    """The same situation 6,000 times over: each option comes as often as its chance says."""
    policy = learned()
    for _ in range(500):
        policy.rank(NEAR, 1.0)  # until the usual loss has settled
    counts: Counter[int] = Counter()
    expected = [0.0, 0.0, 0.0]
    for _ in range(6_000):
        ranking = policy.rank(NEAR, 1.0)
        counts[ranking.order[0]] += 1
        expected = [e + c for e, c in zip(expected, ranking.chances, strict=True)]
        assert sum(ranking.chances) == pytest.approx(1.0) and min(ranking.chances) > 0
    for i in range(3):
        assert counts[i] == pytest.approx(expected[i], abs=4 * expected[i] ** 0.5 + 1)
    assert counts[0] > counts[1] > counts[2]


def test_exploring_costs_no_more_than_it_may():
    policy = learned(exploration=0.05)
    losses = [policy.loss_usd(o, o.now) for o in NEAR]
    for _ in range(500):
        policy.rank(NEAR, 1.0)
    chances = policy.rank(NEAR, 1.0).chances
    extra = sum(c * (loss - min(losses)) for c, loss in zip(chances, losses, strict=True))
    assert 0 < extra <= 0.05 * min(losses) * 1.05


def test_the_middle_of_a_session_is_hardly_explored():
    policy = learned()
    start = [option("a"), option("b", cost_nusd=10.5e6)]
    cold = Option("b", replace(KNOWN, cost_nusd=300e6), replace(KNOWN, cost_nusd=10.5e6))
    middle = [option("a", home=True), cold]
    for _ in range(300):
        policy.rank(start, 1.0)
    assert policy.rank(start, 20.0).chances[1] > 50 * policy.rank(middle, 20.0).chances[1]


def test_what_was_never_tried_is_tried_unless_nobody_knows_its_price():
    policy = learned()
    new = option("new", tried=0, cost_nusd=900e6)
    sold = option("sold", tried=0, cost_nusd=None, sold=True)
    chances = policy.rank([GOOD, new, sold], 1.0).chances
    assert chances[1] == pytest.approx(1 / 3) and chances[2] < 1e-6


def test_the_pacer_weighs_money_while_too_much_is_spent():
    """Two options: dear and on target, cheap and often late. The budget allows a mean between."""
    dear, cheap = option("dear", cost_nusd=20e6, met=0.99), option("cheap", cost_nusd=2e6, met=0.5)
    free, paced = learned(1), learned(1, budget=10e-3 * 3600)
    spent = {}
    for name, policy in (("free", free), ("paced", paced)):
        total = 0.0
        for second in range(4000):
            usd = [dear, cheap][policy.rank([dear, cheap], 1.0).order[0]].now.cost_nusd
            assert usd is not None
            policy.pacer.spent(usd / 1e9, float(second))
            total += usd / 1e9 if second >= 2000 else 0.0
        spent[name] = total / 2000
    assert spent["free"] > 0.015 and spent["paced"] == pytest.approx(0.010, rel=0.25)


def test_sessions_stay_with_their_engine():
    members = [f"e{i}" for i in range(8)]
    keys = [f"s{i}" for i in range(4000)]
    before = {key: ranked(key, members)[0] for key in keys}
    counts = Counter(before.values())
    assert min(counts.values()) > 350 and max(counts.values()) < 650
    after = {key: ranked(key, members[:-1])[0] for key in keys}
    moved = [key for key in keys if before[key] != after[key]]
    assert all(before[key] == "e7" for key in moved)  # only those of the one that went
    assert {key: ranked(key, members[::-1])[0] for key in keys} == before


def test_no_engine_gets_more_than_its_share_and_a_quarter():
    members = ["a", "b", "c", "d"]
    loads = dict.fromkeys(members, 0.0)
    for i in range(400):
        loads[member_for("the same session" if i % 2 else f"s{i}", members, loads)] += 1.0
    assert max(loads.values()) <= 1.25 * 401 / 4 + 1
