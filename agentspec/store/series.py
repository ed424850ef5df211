"""When: sums per time bucket."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import Connection

from .rollup_schema import SUMS
from .slices import Slice, sums


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sums over the requests taken in from ``start_ms`` to the next bucket's start. unpriced: those
    whose cost is not known, and in no sum."""

    start_ms: int
    requests: int = 0
    failed: int = 0
    in_tok: int = 0
    cached_tok: int = 0
    out_tok: int = 0
    spec_steps: int = 0
    spec_accepted: int = 0
    cost_fresh_nusd: int = 0
    cost_cached_nusd: int = 0
    cost_out_nusd: int = 0
    cost_failed_nusd: int = 0
    unpriced: int = 0

    @property
    def fresh_tok(self) -> int:
        return self.in_tok - self.cached_tok

    @property
    def accepted_length(self) -> float | None:
        """Tokens per verification step, the bonus token included; None without a step."""
        return 1 + self.spec_accepted / self.spec_steps if self.spec_steps else None

    @property
    def cost_nusd(self) -> int:
        answered = self.cost_fresh_nusd + self.cost_cached_nusd + self.cost_out_nusd
        return answered + self.cost_failed_nusd


_SUMMED = [field.name for field in fields(Bucket) if field.name in SUMS]


def series(connection: Connection, slice: Slice, bucket_ms: int) -> list[Bucket]:
    """Every bucket that overlaps the window, in order, empty ones included.

    Buckets start at whole multiples of ``bucket_ms`` since 1970; the first and the last may be cut
    by the window.
    """
    found: dict[int, dict[str, int]] = {}
    by_status = sums(connection, slice, _SUMMED, by=("status",), bucket_ms=bucket_ms)
    for (start_ms, status), values in by_status.items():
        into = found.setdefault(start_ms, dict.fromkeys((*_SUMMED, "failed"), 0))
        for name, value in values.items():
            into[name] += value
        if status in ("error", "lost"):
            into["failed"] += values["requests"]
    window = slice.window
    first = window.since_ms - window.since_ms % bucket_ms
    return [Bucket(at, **found.get(at, {})) for at in range(first, window.until_ms, bucket_ms)]
