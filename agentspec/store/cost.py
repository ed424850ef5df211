"""What a request costs by a price list: tokens times price, in integer nano-USD.

    fresh  = (in_tok - cached_tok - cache_write_tok) * input price + writes * their prices
    cached = cached_tok * cached price
    out    = (out_tok - reason_tok) * output price + reason_tok * reasoning price

Each part is rounded once (``money``), so that the parts add up to the total exactly. A part that
has tokens but no price is unknown (None), and so is the total then; a part without tokens is 0.
Reasoning tokens are output tokens: without a price of their own they are billed as output, which
is how vendors bill them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from agentspec.settings import PriceSettings

from .money import PER_MILLION, half_even, nusd

BY_SETTINGS, BY_VERSION, BY_BUSY_TIME = 2, 3, 4
"""``cost_formula`` of a row: prices of the settings, of a price version (``price_version_id``), or
busy time of a provisioned pool. 1 (no longer written): settings' prices, where a missing one was 0,
and a missing cached one the input price."""


@dataclass(frozen=True, slots=True)
class Price:
    """Nano-USD per million tokens of each kind; None where the source gives none.

    above_tok: holds for requests with more input tokens than this.
    """

    in_nusd_per_m: int | None = None
    cached_nusd_per_m: int | None = None
    cache_write_nusd_per_m: int | None = None
    out_nusd_per_m: int | None = None
    reason_nusd_per_m: int | None = None
    above_tok: int = 0
    cache_write_1h_nusd_per_m: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The parts of a cost, nano-USD; None: unknown."""

    fresh_nusd: int | None
    cached_nusd: int | None
    out_nusd: int | None

    @property
    def total_nusd(self) -> int | None:
        parts = (self.fresh_nusd, self.cached_nusd, self.out_nusd)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


UNKNOWN = Cost(None, None, None)
FREE = Cost(0, 0, 0)


def cost(
    price: Price,
    *,
    in_tok: int,
    cached_tok: int,
    out_tok: int,
    reason_tok: int = 0,
    cache_write_tok: int = 0,
    cache_write_1h_tok: int = 0,
) -> Cost:
    """The cost of one request, or of the sum of many.

    ``in_tok`` includes ``cached_tok`` and ``cache_write_tok``, that ``cache_write_1h_tok``, and
    ``out_tok`` ``reason_tok``; each is cut to it if larger.
    """
    cached_tok, reason_tok = min(cached_tok, in_tok), min(reason_tok, out_tok)
    written_tok = min(cache_write_tok, in_tok - cached_tok)
    hour_tok = min(cache_write_1h_tok, written_tok)
    reason = price.reason_nusd_per_m
    if reason is None:
        reason = price.out_nusd_per_m
    return Cost(
        fresh_nusd=_part(
            (in_tok - cached_tok - written_tok, price.in_nusd_per_m),
            (written_tok - hour_tok, price.cache_write_nusd_per_m),
            (hour_tok, price.cache_write_1h_nusd_per_m),
        ),
        cached_nusd=_part((cached_tok, price.cached_nusd_per_m)),
        out_nusd=_part((out_tok - reason_tok, price.out_nusd_per_m), (reason_tok, reason)),
    )


def _part(*terms: tuple[int, int | None]) -> int | None:
    exact = 0
    for tokens, nusd_per_m in terms:
        if tokens and nusd_per_m is None:
            return None
        exact += tokens * (nusd_per_m or 0)
    whole, rest = divmod(exact, PER_MILLION)
    return whole + (2 * rest + (whole & 1) > PER_MILLION)


def nusd_per_m(usd_per_m: float | Decimal | str | None) -> int | None:
    """A price in USD per million tokens as the integer that is kept; None stays None."""
    return None if usd_per_m is None else half_even(nusd(usd_per_m))


def from_settings(price: PriceSettings) -> Price | None:
    """The prices that stand in the settings; None where none stands there."""
    found = Price(
        in_nusd_per_m=nusd_per_m(price.input_usd_per_m),
        cached_nusd_per_m=nusd_per_m(price.cached_usd_per_m),
        cache_write_nusd_per_m=nusd_per_m(price.cache_write_usd_per_m),
        cache_write_1h_nusd_per_m=nusd_per_m(price.cache_write_1h_usd_per_m),
        out_nusd_per_m=nusd_per_m(price.output_usd_per_m),
        reason_nusd_per_m=nusd_per_m(price.reasoning_usd_per_m),
    )
    return None if found == Price() else found


def per_million(total_nusd: int | None, tokens: int) -> Fraction | None:
    """Exact nano-USD per million tokens; None without tokens or with an unknown total."""
    return Fraction(total_nusd * PER_MILLION, tokens) if tokens and total_nusd is not None else None
