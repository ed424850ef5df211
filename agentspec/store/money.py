"""Money in whole nano-USD, and the one rule by which it is rounded.

The rule: every amount is computed exactly, as a fraction, and rounded once, at the end, to the
nearest nano-USD, halves to even. Where a whole is split, the whole is rounded first and its parts
are made to add up to it (``largest_remainder``).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

NUSD_PER_USD = 10**9
PER_MILLION = 10**6


def half_even(exact: Fraction) -> int:
    """The nearest integer; a half goes to the even one."""
    return round(exact)


def nusd(usd: float | Decimal | str) -> Fraction:
    """Exact nano-USD of an amount in USD, taken at its decimal spelling (0.1 is a tenth)."""
    return Fraction(Decimal(repr(usd) if isinstance(usd, float) else usd)) * NUSD_PER_USD


def largest_remainder(total: int, weights: Sequence[int | Fraction]) -> list[int]:
    """``total`` in whole parts proportional to ``weights``, which add up to it exactly.

    Each part is its exact share, rounded down or up; the largest fractions are rounded up, the
    first of equals. Weights are not negative and not all zero. A negative ``total`` is split like
    its opposite.
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights must not be negative, and their sum must be positive")
    if total < 0:
        return [-part for part in largest_remainder(-total, weights)]
    parts, remainders = zip(*(divmod(total * weight, whole) for weight in weights), strict=True)
    given = [int(part) for part in parts]
    order = sorted(range(len(given)), key=lambda at: -remainders[at])
    for at in order[: total - sum(given)]:
        given[at] += 1
    return given
