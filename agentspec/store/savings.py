"""What speculation saves, from the engine's own control windows.

Both arms are requests that began and ended within one window of the schedule, the whole engine
speculating ("on") or not ("off") all the while; the same rule for both, since it leaves out long
requests. r is the time to generate (decode, drafts, grammar) per output token, a ratio of sums over
windows. The interval is that of the logarithm of r_on / r_off: the jackknife's variance of each
arm's logarithm (a window is left out at a time), and Student's t with Satterthwaite's degrees of
freedom. Nothing is drawn, so it is the same each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy import BigInteger, Connection, and_, case, cast, or_, select

from .money import half_even
from .schema import request
from .window import Window, total

LEVEL = 0.95
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Arm:
    """The requests of one arm. us: generating; ratio: microseconds per output token; variance: of
    the logarithm of ``ratio``, infinite where one window holds everything."""

    windows: int
    requests: int
    out_tok: int
    us: int
    ratio: float
    variance: float


@dataclass(frozen=True, slots=True)
class Savings:
    """share: of the time to generate a token, what speculation saves; negative: it costs.

    low, high: 95 % interval of ``share``. saved_nusd, low_nusd, high_nusd: the same for all time
    that requests spent generating while the engine speculated, at the pool's price a busy second;
    money only where the time is used otherwise. unknown: why there is no figure.
    """

    on: Arm | None = None
    off: Arm | None = None
    share: float | None = None
    low: float | None = None
    high: float | None = None
    saved_nusd: int | None = None
    low_nusd: int | None = None
    high_nusd: int | None = None
    unknown: str = ""


def savings(
    connection: Connection,
    window: Window,
    prices: Mapping[str, Fraction | None],
    window_ms: int,
) -> dict[str, Savings]:
    """The savings of backends over a window. prices: of a busy microsecond by backend, nano-USD,
    None where it isn't known; window_ms: length of the engine's control windows."""
    found = _stretches(connection, window, list(prices), window_ms)
    return {name: _saved(found.get(name, {}), price) for name, price in prices.items()}


def _saved(stretches: Mapping[str, list[_Stretch]], nusd_per_us: Fraction | None) -> Savings:
    on, off = (
        arm([(s.requests, s.out_tok, s.us) for s in stretches.get(name, []) if s.requests])
        for name in ("on", "off")
    )
    missing = [name for name, one in (("on", on), ("off", off)) if one is None or one.windows < 2]
    if on is None or off is None or missing:
        return Savings(on, off, unknown=f"too few windows with requests: {', '.join(missing)}")
    log, reach = log_ratio(on, off)
    middle, most, least = (math.exp(log + at) for at in (0, reach, -reach))  # cost on / off
    spent = sum(stretch.all_us for stretch in stretches["on"])

    def money(ratio: float) -> int | None:
        if nusd_per_us is None:
            return None
        return half_even(nusd_per_us * spent * (1 / Fraction(ratio) - 1))

    return Savings(
        on,
        off,
        share=1 - middle,
        low=1 - most,
        high=1 - least,
        saved_nusd=money(middle),
        low_nusd=money(most),
        high_nusd=money(least),
    )


def arm(clusters: Sequence[tuple[int, int, int]]) -> Arm | None:
    """Of (requests, output tokens, microseconds) by window, all positive; None without any."""
    if not clusters:
        return None
    requests, tokens, us = (sum(column) for column in zip(*clusters, strict=True))
    n, variance = len(clusters), math.inf
    if n > 1:
        logs = [math.log((us - c[2]) / (tokens - c[1])) for c in clusters]
        mean = math.fsum(logs) / n
        variance = (n - 1) / n * math.fsum((log - mean) ** 2 for log in logs)
    return Arm(n, requests, tokens, us, us / tokens, variance)


def log_ratio(on: Arm, off: Arm) -> tuple[float, float]:
    """The logarithm of r_on / r_off, and the reach of its interval to either side."""
    parts = [(one.variance, one.windows - 1) for one in (on, off)]
    variance = sum(part for part, _ in parts)
    below = sum(part**2 / freedom for part, freedom in parts)
    reach = t_quantile(variance**2 / below) * math.sqrt(variance) if below else 0.0
    return math.log(on.ratio / off.ratio), reach


def t_quantile(freedom: float) -> float:
    """Student's t at 97.5 %; fewer degrees of freedom are taken where they are not whole."""
    whole = max(1, math.floor(freedom))
    if whole <= len(_T):
        return _T[whole - 1]
    z, n = _Z, whole  # Cornish and Fisher's series
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One window of the schedule. requests, out_tok, us: of requests that the figures rest on;
    all_us: what all requests that began in it spent generating."""

    requests: int
    out_tok: int
    us: int
    all_us: int


def _stretches(
    connection: Connection, window: Window, backends: Sequence[str], window_ms: int
) -> dict[str, dict[str, list[_Stretch]]]:
    """Backend -> arm -> its windows, oldest first: one look at the rows for all of them."""
    c = request.c
    us = c.busy_decode_us + c.busy_draft_us + c.busy_grammar_us
    began = c.ts_ms - c.ts_ms % window_ms
    ended_ms = c.ts_ms + cast(c.e2e_ms, BigInteger)
    told = and_(
        c.status == "ok",
        or_(c.spec_arm.is_(None), c.spec_arm == "on"),
        ended_ms < began + window_ms,
        c.out_tok > 0,
        us > 0,
    )
    own = (total(case((told, one), else_=0)) for one in (1, c.out_tok, us))
    query = (
        select(c.backend, c.spec_window, *own, total(us))
        .where(window.rows(), c.backend.in_(backends), c.spec_window.in_(("on", "off")))
        .group_by(c.backend, c.spec_window, began)
        .order_by(began)
    )
    found: dict[str, dict[str, list[_Stretch]]] = {}
    for row in connection.execute(query):
        backend, name, *sums = tuple(row)
        found.setdefault(backend, {}).setdefault(name, []).append(_Stretch(*sums))
    return found
