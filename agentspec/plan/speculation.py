"""Whether speculation pays: expected tokens of a round over what the round costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .drafts import Draft
from .roofline import ROUND_S, Machine, draft_seconds, step_seconds
from .shape import Shape

PAYS = 1.02
"""A gain below is none: estimates are not better than that."""


def expected(rate: float, tokens: int) -> float:
    """Tokens of a round that verifies ``tokens`` drafts: each stands with ``rate``, given those
    before it; the bonus token counts."""
    return sum(rate**place for place in range(tokens + 1))


def rate_of(length: float, tokens: int) -> float:
    """The rate under which blocks of ``tokens`` drafts are accepted with that mean length."""
    return _bisected(lambda rate: expected(rate, tokens) - length)


def _bisected(rises: Callable[[float], float]) -> float:
    """Where a rising function of 0 to 1 crosses zero; the nearer end where it doesn't."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class Gain:
    """Speculation at one width. draft_share: of a round's time."""

    width: int
    speedup: float
    draft_share: float


@dataclass(frozen=True, slots=True)
class Level:
    """One concurrency. plain_s: of a step without drafts.

    low: the lower acceptance, experts independent, an engine's overhead in each round; high: the
    higher acceptance, neighbours share experts, no overhead. break_even: the acceptance of each
    token below which, on low's terms, no width pays; None: none is enough.
    """

    concurrency: int
    plain_s: float
    low: Gain
    high: Gain
    break_even: float | None
    experts_plain: float
    experts_verified: float

    @property
    def plain_tok_s(self) -> float:
        return self.concurrency / self.plain_s

    @property
    def answer(self) -> str:
        if self.low.speedup >= PAYS:
            return "pays"
        return "depends" if self.high.speedup >= PAYS else "does not pay"


def gain(
    machine: Machine,
    shape: Shape,
    draft: Draft,
    sequences: int,
    context: int,
    rate: float,
    *,
    shared: bool = False,
    round_s: float = 0.0,
) -> Gain:
    """The best width of 1 to ``draft.most``. round_s: overhead of each round."""
    plain_s = step_seconds(machine, shape, sequences, 1, context)
    found = []
    for width in range(1, draft.most + 1):
        verify_s = step_seconds(machine, shape, sequences, 1 + width, context, shared=shared)
        # A block is drafted whole, however much of it is verified.
        drafted = draft.most if draft.kind == "dspark" else width
        draft_s = round_s + draft_seconds(machine, draft, sequences, drafted, context)
        speedup = expected(rate, width) * plain_s / (verify_s + draft_s)
        found.append(Gain(width, speedup, draft_s / (verify_s + draft_s)))
    return max(found, key=lambda one: one.speedup)


def level(
    machine: Machine,
    shape: Shape,
    draft: Draft,
    sequences: int,
    context: int,
    rates: tuple[float, float],
) -> Level:
    """rates: acceptance of each token, lowest and highest."""
    low = gain(machine, shape, draft, sequences, context, rates[0], round_s=ROUND_S)
    high = gain(machine, shape, draft, sequences, context, rates[1], shared=True)

    def over(rate: float) -> float:
        found = gain(machine, shape, draft, sequences, context, rate, round_s=ROUND_S)
        return found.speedup - 1.0

    return Level(
        sequences,
        step_seconds(machine, shape, sequences, 1, context),
        low,
        high,
        _bisected(over) if over(1.0) > 0 else None,
        shape.experts_touched(sequences),
        shape.experts_touched(sequences * (1 + low.width)),
    )


def price_per_million(machine: Machine, price_hour: float, tok_s: float) -> float:
    """Dollars for a million output tokens of a machine that does nothing but decode at this pace.

    price_hour: of one GPU.
    """
    return machine.count * price_hour * 1e6 / (3600.0 * tok_s)
