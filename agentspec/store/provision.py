"""The bill of a self-hosted backend: what its provisioned time cost, and for what.

The whole is the pool's price times its provisioned time, idle time included. It is split by the
microseconds that the engine was busy with each kind of work; what nobody used is idle. Parts add
up to the whole exactly, on every level. A backend that tells no busy time is split by tokens, and
its idle time is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from agentspec.settings import PoolSettings

from .cost import per_million
from .money import largest_remainder
from .pool import provisioned_ms, provisioned_nusd
from .usage import Usage
from .window import Window

BY_BUSY_TIME, BY_TOKENS = "busy time", "tokens, uncalibrated"
OUT_WEIGHT = 4
"""An output token's share against a fresh input token's where busy time is not told (the ratio that
GKE's recommender assumes)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Nano-USD by kind of work. draft: making drafts; verifying them is decode."""

    fresh_nusd: int = 0
    cached_nusd: int = 0
    decode_nusd: int = 0
    draft_nusd: int = 0
    grammar_nusd: int = 0

    @property
    def total_nusd(self) -> int:
        return sum(self.values())

    def values(self) -> tuple[int, ...]:
        return (
            self.fresh_nusd,
            self.cached_nusd,
            self.decode_nusd,
            self.draft_nusd,
            self.grammar_nusd,
        )


@dataclass(frozen=True, slots=True)
class Bill:
    """A pool's cost over a window.

    total_nusd = busy.total_nusd + idle_nusd (0 where idle is not known: idle_us is None then).
    loaded: the whole, with idle time spread over the work that there was; where there was none, it
    is all zero. overrun_us: busy time beyond what was provisioned (requests that began before the
    window's end are counted whole).
    """

    split: str
    provisioned_ms: int
    available_us: int
    total_nusd: int
    busy: Parts
    idle_nusd: int
    idle_us: int | None
    overrun_us: int
    loaded: Parts
    usage: Usage

    @property
    def utilisation(self) -> Fraction | None:
        """Busy share of the provisioned time; None where it is not told."""
        if self.idle_us is None or not self.available_us:
            return None
        return Fraction(self.available_us - self.idle_us, self.available_us)

    @property
    def rejected_nusd(self) -> int:
        """Of the busy cost, what rejected drafts took: their rows in the passes that verified them,
        and their part of drafting. An estimate: a row is taken to cost the same as another."""
        rejected, u = self.usage.rejected_tok, self.usage
        if not rejected:
            return 0
        kept = u.spec_steps + u.spec_accepted + u.forced_tok
        verifying = largest_remainder(self.busy.decode_nusd, [rejected, kept])[0]
        return verifying + largest_remainder(self.busy.draft_nusd, [rejected, u.spec_accepted])[0]

    def per_million_out(self) -> Fraction | None:
        """The whole over output tokens alone, nano-USD per million (basis "out")."""
        return per_million(self.total_nusd, self.usage.out_tok)

    def per_million_total(self) -> Fraction | None:
        """The whole over input and output tokens, nano-USD per million (basis "total")."""
        return per_million(self.total_nusd, self.usage.in_tok + self.usage.out_tok)


def bill(pool: PoolSettings, window: Window, usage: Usage) -> Bill:
    """The bill of a pool for the requests of a window."""
    ms = provisioned_ms(pool, window)
    whole, available_us = provisioned_nusd(pool, ms), ms * 1000 * pool.replicas
    by_tokens = not usage.busy_us and usage.out_tok > 0
    weights = _weights(pool, usage, by_tokens)
    idle_us = 0 if by_tokens else max(0, available_us - usage.busy_us)
    if not any(weights) and not idle_us:  # nothing was provisioned, and nothing done
        parts = [0] * (len(weights) + 1)
        whole = 0
    else:
        parts = largest_remainder(whole, [*weights, idle_us])
    busy, idle_nusd = Parts(*parts[:-1]), parts[-1]
    spread = largest_remainder(idle_nusd, weights) if any(weights) else [0] * len(weights)
    loaded = [one + more for one, more in zip(busy.values(), spread, strict=True)]
    return Bill(
        split=BY_TOKENS if by_tokens else BY_BUSY_TIME,
        provisioned_ms=ms,
        available_us=available_us,
        total_nusd=whole,
        busy=busy,
        idle_nusd=idle_nusd,
        idle_us=None if by_tokens else idle_us,
        overrun_us=max(0, usage.busy_us - available_us),
        loaded=Parts(*loaded),
        usage=usage,
    )


def shares(pool: PoolSettings, whole: Bill, groups: Sequence[Usage]) -> list[Parts]:
    """The busy cost of a bill, divided over groups of its requests kind by kind.

    Each kind adds up to the bill's. What a request used is its own: passes that verified drafts
    which were rejected, repairs and tries of the same backend included.
    """
    if not groups:
        return []
    by_tokens = whole.split == BY_TOKENS
    columns = zip(*(_weights(pool, group, by_tokens) for group in groups), strict=True)
    work = [group.busy_us for group in groups]
    evenly = [group.requests for group in groups]
    divided = [
        largest_remainder(nusd, next(w for w in (column, work, evenly) if any(w)))
        for nusd, column in zip(whole.busy.values(), columns, strict=True)
    ]
    return [Parts(*row) for row in zip(*divided, strict=True)]


def _weights(pool: PoolSettings, usage: Usage, by_tokens: bool) -> list[Fraction]:
    """What fresh, cached, decode, draft and grammar are weighed by: microseconds, or tokens."""
    fresh = Fraction(usage.fresh_tok)
    cached = usage.cached_tok * Fraction(repr(pool.cached_weight))
    if by_tokens:
        return [fresh, cached, Fraction(usage.out_tok * OUT_WEIGHT), Fraction(0), Fraction(0)]
    prefill = Fraction(usage.busy_prefill_us)
    cached_part = prefill * cached / (fresh + cached) if cached else Fraction(0)
    rest = (usage.busy_decode_us, usage.busy_draft_us, usage.busy_grammar_us)
    return [prefill - cached_part, cached_part, *map(Fraction, rest)]
