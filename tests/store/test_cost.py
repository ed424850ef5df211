"""Cost by a price list, against hand-computed bills and against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.settings import PriceSettings
from agentspec.store.cost import Cost, Price, cost, from_settings, nusd_per_m, per_million
from agentspec.store.money import half_even, largest_remainder

TOKENS = st.integers(0, 10**7)
PRICES = st.decimals(0, 500, places=4)


@pytest.mark.parametrize(
    "price, tokens, expected",
    [
        # 1,000 fresh at $3/M, 9,000 cached at $0.30/M, 500 out at $15/M
        (("3", "0.3", "15"), (10_000, 9_000, 500), Cost(3_000_000, 2_700_000, 7_500_000)),
        (("3", None, "15"), (10_000, 9_000, 500), Cost(3_000_000, None, 7_500_000)),
        (("3", None, "15"), (10_000, 0, 500), Cost(30_000_000, 0, 7_500_000)),
        ((None, "0.145", "3.48"), (1000, 1000, 2), Cost(0, 145_000, 6_960)),
        ((None, "0.145", "3.48"), (1000, 999, 2), Cost(None, 144_855, 6_960)),
        (("3", "0", "0"), (10_000, 10_000, 0), Cost(0, 0, 0)),
        (("1", "1", "1"), (5, 9, 1), Cost(0, 5_000, 1_000)),  # more cached than there was
        (("0.0005", "0", "0.0015"), (1, 0, 1), Cost(0, 0, 2)),  # 0.5 and 1.5 go to the even one
        (("0.0025", "0", "0.0035"), (1, 0, 1), Cost(2, 0, 4)),
        (("0.1", "0", "0"), (3, 0, 0), Cost(300, 0, 0)),
    ],
)
def test_bills(price: tuple, tokens: tuple, expected: Cost):
    fresh, cached, out = map(nusd_per_m, price)
    in_tok, cached_tok, out_tok = tokens
    kept = Price(in_nusd_per_m=fresh, cached_nusd_per_m=cached, out_nusd_per_m=out)
    assert cost(kept, in_tok=in_tok, cached_tok=cached_tok, out_tok=out_tok) == expected


def test_a_total_is_known_when_all_its_parts_are():
    assert Cost(1, 2, 3).total_nusd == 6
    for parts in ((None, 2, 3), (1, None, 3), (1, 2, None)):
        assert Cost(*parts).total_nusd is None


def test_reasoning_is_output_unless_it_has_a_price():
    price = Price(out_nusd_per_m=2_000_000)
    assert cost(price, in_tok=0, cached_tok=0, out_tok=10, reason_tok=4).out_nusd == 20
    price = Price(out_nusd_per_m=2_000_000, reason_nusd_per_m=5_000_000)
    assert cost(price, in_tok=0, cached_tok=0, out_tok=10, reason_tok=4).out_nusd == 32
    assert cost(price, in_tok=0, cached_tok=0, out_tok=10, reason_tok=99).out_nusd == 50


def test_writes_to_a_cache_have_prices_of_their_own():
    price = Price(3_000, 300, 3_750, 15_000, cache_write_1h_nusd_per_m=6_000)
    tokens = {"in_tok": 10**6, "cached_tok": 6 * 10**5, "out_tok": 0}
    written = {"cache_write_tok": 3 * 10**5, "cache_write_1h_tok": 10**5}
    assert cost(price, **tokens, **written) == Cost(300 + 750 + 600, 180, 0)
    absurd = {"cache_write_tok": 10**9, "cache_write_1h_tok": 10**9}
    assert cost(price, **tokens, **absurd) == Cost(2_400, 180, 0)
    bare = Price(3_000, 300, None, 15_000)
    assert cost(bare, **tokens, **written).fresh_nusd is None
    assert cost(bare, **tokens) == Cost(1_200, 180, 0)


@given(price=PRICES, reason=PRICES, tokens=TOKENS, share=st.integers(0, 100))
def test_within_half_a_nano_dollar_of_the_exact_price(price, reason, tokens: int, share: int):
    reasoned = tokens * share // 100
    kept = Price(out_nusd_per_m=nusd_per_m(price), reason_nusd_per_m=nusd_per_m(reason))
    bill = cost(kept, in_tok=0, cached_tok=0, out_tok=tokens, reason_tok=reasoned)
    exact = 1000 * (Fraction(price) * (tokens - reasoned) + Fraction(reason) * reasoned)
    assert bill.out_nusd is not None and abs(bill.out_nusd - exact) <= Fraction(1, 2)
    assert bill.out_nusd == half_even(exact)
    assert (bill.fresh_nusd, bill.cached_nusd) == (0, 0)


@given(usd=st.decimals(0, 1000, places=9))
def test_a_price_is_kept_exactly(usd):
    assert nusd_per_m(usd) == Fraction(usd) * 10**9
    assert nusd_per_m(str(usd)) == Fraction(usd) * 10**9


def test_prices_of_the_settings_are_taken_at_their_decimal_spelling():
    settings = PriceSettings(input_usd_per_m=0.1, output_usd_per_m=0.28)
    assert from_settings(settings) == Price(in_nusd_per_m=10**8, out_nusd_per_m=28 * 10**7)
    assert from_settings(PriceSettings(input_usd_per_m=0.0)) == Price(in_nusd_per_m=0)
    assert from_settings(PriceSettings()) is None


def test_per_million():
    assert per_million(61, 3) == Fraction(61_000_000, 3)
    assert per_million(None, 3) is None and per_million(1, 0) is None


WEIGHTS = st.lists(st.integers(0, 10**6) | st.fractions(0, 1000), min_size=1, max_size=40)


@given(total=st.integers(-(10**15), 10**15), weights=WEIGHTS.filter(any))
def test_parts_add_up_to_the_whole_and_each_is_next_to_its_share(total: int, weights: list):
    parts = largest_remainder(total, weights)
    assert sum(parts) == total and all(type(part) is int for part in parts)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - Fraction(total) * weight / sum(weights)) < 1
        assert weight or part == 0


@pytest.mark.parametrize(
    "total, weights, parts",
    [
        (10, [1, 1, 1], [4, 3, 3]),  # the first of equals
        (100, [1, 2, 3], [17, 33, 50]),  # 16.67, 33.33, 50
        (-10, [1, 1, 1], [-4, -3, -3]),
        (1, [0, 0, 5], [0, 0, 1]),
        (0, [3, 4], [0, 0]),
    ],
)
def test_largest_remainder_by_hand(total: int, weights: list[int], parts: list[int]):
    assert largest_remainder(total, weights) == parts


@pytest.mark.parametrize("weights", [[], [0, 0], [3, -1]])
def test_what_cannot_be_weighed(weights: list[int]):
    with pytest.raises(ValueError, match="weights"):
        largest_remainder(5, weights)
