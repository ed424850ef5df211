"""Goodput: the requests that met every limit of a service level (ttft, tpot, e2e) at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """Limits in ms; None: none."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def met(self, ttft_ms: float | None, tpot_ms: float | None, e2e_ms: float | None) -> bool:
        """Whether a request's times are all within the limits. A time that isn't known meets no
        limit, but for the time per token of an answer without a second token."""
        told = ((ttft_ms, self.ttft_ms), (tpot_ms, self.tpot_ms), (e2e_ms, self.e2e_ms))
        return all(limit is None or (ms is not None and ms <= limit) for ms, limit in told)


@dataclass(slots=True)
class Good:
    """good: answered within the level; late: answered, but not within it; failed: errors and lost
    ones. Clients that left are in none of them."""

    good: int = 0
    late: int = 0
    failed: int = 0

    @property
    def share(self) -> float | None:
        whole = self.good + self.late + self.failed
        return self.good / whole if whole else None


def goodput(rows: Iterable[tuple], level: Level) -> dict[str, Good]:
    """Of rows (group, status, ttft_ms, tpot_ms, e2e_ms, out_tok), by group.

    An answer whose first token's time is not known came in one piece: that was its first token; so
    did one whose time per token is not known, at its first token.
    """
    found: dict[str, Good] = {}
    for group, status, ttft_ms, tpot_ms, e2e_ms, out_tok in rows:
        if status == "cancelled":
            continue
        into = found.setdefault(group, Good())
        if status != "ok":
            into.failed += 1
        elif level.met(*_times(ttft_ms, tpot_ms, e2e_ms, out_tok)):
            into.good += 1
        else:
            into.late += 1
    return found


def _times(
    ttft_ms: float | None, tpot_ms: float | None, e2e_ms: float | None, out_tok: int
) -> tuple[float | None, float | None, float | None]:
    first_ms = e2e_ms if ttft_ms is None else ttft_ms
    return first_ms, 0.0 if out_tok <= 1 or tpot_ms is None else tpot_ms, e2e_ms
