"""Cost against hand-computed bills and against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.settings import PriceSettings
from agentspec.store.cost import Cost, cost

TOKENS = st.integers(0, 10**7)
PRICES = st.decimals(0, 500, places=4).map(float)


@pytest.mark.parametrize(
    "price, tokens, expected",
    [
        # 1,000 fresh at $3/M, 9,000 cached at $0.30/M, 500 out at $15/M
        ((3.0, 0.3, 15.0), (10_000, 9_000, 500), Cost(3_000_000, 2_700_000, 7_500_000)),
        ((3.0, None, 15.0), (10_000, 9_000, 500), Cost(3_000_000, 27_000_000, 7_500_000)),
        ((3.0, 0.0, 0.0), (10_000, 10_000, 0), Cost(0, 0, 0)),
        ((1.0, 1.0, 1.0), (5, 9, 1), Cost(0, 5_000, 1_000)),  # more cached than there was
        ((0.0005, 0.0, 0.0015), (1, 0, 1), Cost(0, 0, 2)),  # 0.5 and 1.5 go to the even number
        ((0.1, 0.0, 0.0), (3, 0, 0), Cost(300, 0, 0)),
    ],
)
def test_bills(price: tuple, tokens: tuple, expected: Cost):
    settings = PriceSettings(
        input_usd_per_m=price[0], cached_usd_per_m=price[1], output_usd_per_m=price[2]
    )
    in_tok, cached_tok, out_tok = tokens
    bill = cost(settings, in_tok=in_tok, cached_tok=cached_tok, out_tok=out_tok)
    assert bill == expected
    assert bill.total_nusd == sum((expected.fresh_nusd, expected.cached_nusd, expected.out_nusd))


@given(price=PRICES, tokens=TOKENS)
def test_within_half_a_nano_dollar_of_the_exact_price(price: float, tokens: int):
    settings = PriceSettings(output_usd_per_m=price)
    bill = cost(settings, in_tok=0, cached_tok=0, out_tok=tokens)
    exact = Fraction(repr(price)) / 10**6 * tokens * 10**9
    assert abs(bill.out_nusd - exact) <= Fraction(1, 2)
    assert (bill.fresh_nusd, bill.cached_nusd) == (0, 0)


@given(price=PRICES, in_tok=TOKENS, cached=TOKENS)
def test_without_a_cached_price_the_split_changes_nothing_but_rounding(
    price: float, in_tok: int, cached: int
):
    settings = PriceSettings(input_usd_per_m=price)
    split = cost(settings, in_tok=in_tok, cached_tok=cached, out_tok=0)
    whole = cost(settings, in_tok=in_tok, cached_tok=0, out_tok=0)
    assert abs(split.total_nusd - whole.total_nusd) <= 1
