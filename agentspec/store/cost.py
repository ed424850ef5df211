"""What a request costs by a price list: tokens times price, in integer nano-USD (formula 1).

    fresh  = (in_tok - cached_tok) * input price      one dollar per million tokens
    cached = cached_tok * cached price                is 1,000 nano-USD per token
    out    = out_tok * output price

Each part is rounded to the nearest nano-USD on its own (halves to even), so that the parts add up
to the total exactly. A price list without a cached price bills cached tokens like fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from agentspec.settings import PriceSettings

FORMULA = 1
"""Stored with each row as ``cost_formula``, so that a later formula can be told apart."""

_NUSD_PER_TOKEN = 1000  # at one dollar per million tokens


@dataclass(frozen=True, slots=True)
class Cost:
    """The parts of one request's cost, nano-USD."""

    fresh_nusd: int
    cached_nusd: int
    out_nusd: int

    @property
    def total_nusd(self) -> int:
        return self.fresh_nusd + self.cached_nusd + self.out_nusd


def cost(price: PriceSettings, *, in_tok: int, cached_tok: int, out_tok: int) -> Cost:
    """The cost of one request. ``in_tok`` includes ``cached_tok``, which is cut to it if larger.

    Prices are taken at their decimal spelling: 0.1 is a tenth, not the nearest binary fraction.
    """
    cached_tok = min(cached_tok, in_tok)
    cached_price = price.cached_usd_per_m
    if cached_price is None:
        cached_price = price.input_usd_per_m
    return Cost(
        fresh_nusd=_nusd(in_tok - cached_tok, price.input_usd_per_m),
        cached_nusd=_nusd(cached_tok, cached_price),
        out_nusd=_nusd(out_tok, price.output_usd_per_m),
    )


def _nusd(tokens: int, usd_per_m: float) -> int:
    exact = Decimal(repr(usd_per_m)) * _NUSD_PER_TOKEN * tokens
    return int(exact.to_integral_value(ROUND_HALF_EVEN))
