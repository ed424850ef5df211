"""What a request's tokens cost. Integer nano-USD; a formula has a number, which the row keeps."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.settings import PriceSettings

FORMULA = 1
_NANO_PER_USD_PER_M = 1000  # 1 USD per million tokens is 1000 nano-USD a token


@dataclass(frozen=True, slots=True)
class Cost:
    """The parts of a request's cost, nano-USD."""

    fresh_nusd: int
    cached_nusd: int
    out_nusd: int

    @property
    def total_nusd(self) -> int:
        return self.fresh_nusd + self.cached_nusd + self.out_nusd


def token_cost(price: PriceSettings, *, fresh_tok: int, cached_tok: int, out_tok: int) -> Cost:
    """Formula 1: tokens times price. Cached tokens cost as much as fresh ones where no price of
    their own is set. Each part is rounded to a whole nano-USD."""
    cached_usd_per_m = price.cached_usd_per_m
    if cached_usd_per_m is None:
        cached_usd_per_m = price.input_usd_per_m
    return Cost(
        fresh_nusd=_nusd(fresh_tok, price.input_usd_per_m),
        cached_nusd=_nusd(cached_tok, cached_usd_per_m),
        out_nusd=_nusd(out_tok, price.output_usd_per_m),
    )


def _nusd(tokens: int, usd_per_m: float) -> int:
    return round(tokens * usd_per_m * _NANO_PER_USD_PER_M)
