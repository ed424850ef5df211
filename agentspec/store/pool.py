"""What a self-hosted backend costs by the hour, and what a stretch of provisioned time costs.

    rate = (gpus * gpu_usd_per_h + host_usd_per_h + capex_usd / amortisation_h
            + kw * pue * usd_per_kwh) * overhead            USD per hour, busy or idle
    cost = rate * hours provisioned

Exact fractions; see docs/cost.md for where the formula comes from.
"""

from __future__ import annotations

from fractions import Fraction

from agentspec.settings import PoolSettings

from .money import NUSD_PER_USD, half_even, nusd
from .window import Window

_MS_PER_H = 3_600_000


def nusd_per_h(pool: PoolSettings) -> Fraction:
    """Nano-USD an hour of the whole pool."""
    rented = pool.gpus * nusd(pool.gpu_usd_per_h) + nusd(pool.host_usd_per_h)
    owned = nusd(pool.capex_usd) / _exact(pool.amortisation_h)
    power = _exact(pool.kw) * _exact(pool.pue) * nusd(pool.usd_per_kwh)
    return (rented + owned + power) * _exact(pool.overhead)


def busy_nusd_per_us(pool: PoolSettings) -> Fraction:
    """Nano-USD per busy microsecond of one of the pool's engines."""
    return nusd_per_h(pool) / (_MS_PER_H * 1000 * pool.replicas)


def provisioned_ms(pool: PoolSettings, window: Window) -> int:
    """How much of the window the pool was provisioned for, milliseconds."""
    since, until = window.since_ms, window.until_ms
    if pool.from_time is not None:
        since = max(since, int(pool.from_time.timestamp() * 1000))
    if pool.until_time is not None:
        until = min(until, int(pool.until_time.timestamp() * 1000))
    return max(0, until - since)


def provisioned_nusd(pool: PoolSettings, ms: int) -> int:
    """What that much provisioned time costs."""
    return half_even(nusd_per_h(pool) * ms / _MS_PER_H)


def nusd_per_m_at(pool: PoolSettings, tok_s: float) -> Fraction:
    """Nano-USD per million tokens where the pool gives ``tok_s`` tokens per second in all.

    tok_s: all streams together, measured over provisioned time (so that idle time is inside).
    """
    return nusd_per_h(pool) / 3600 * 10**6 / _exact(tok_s)


def _exact(value: float) -> Fraction:
    return nusd(value) / NUSD_PER_USD
