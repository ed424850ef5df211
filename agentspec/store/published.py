"""Prices entered by hand, USD per million tokens, of models that no price map had at the time."""

from __future__ import annotations

from datetime import UTC, datetime

from .cost import Price, nusd_per_m

SOURCE = "issue 7, July 2026"
VALID_FROM_MS = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp() * 1000)

# model: (input, cached input, output); None: the source gives none.
_USD_PER_M: dict[str, tuple[str | None, str | None, str | None]] = {
    "deepseek-v4-pro": (None, "0.145", "3.48"),
    "deepseek-v4-flash": (None, "0.028", "0.28"),
    "tencent-hy3": ("0.20", None, "0.80"),
    "kimi-k3": ("3.00", "0.30", "15.00"),
    "meta-muse-spark-1.1": ("1.25", None, "4.25"),
}


def prices() -> dict[str, list[Price]]:
    """Those prices, by model."""
    return {
        model: [
            Price(
                in_nusd_per_m=nusd_per_m(fresh),
                cached_nusd_per_m=nusd_per_m(cached),
                out_nusd_per_m=nusd_per_m(out),
            )
        ]
        for model, (fresh, cached, out) in _USD_PER_M.items()
    }
