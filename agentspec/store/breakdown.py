"""Where: sums per model and backend."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from .slices import Slice, sums

_SUMMED = (
    "requests",
    "in_tok",
    "cached_tok",
    "out_tok",
    "spec_steps",
    "spec_accepted",
    "cost_nusd",
    "unpriced",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Sums over the requests of one model on one backend. unpriced: those whose cost is not known,
    and not in ``cost_nusd``."""

    model: str
    backend: str
    requests: int
    failed: int
    in_tok: int
    cached_tok: int
    out_tok: int
    spec_steps: int
    spec_accepted: int
    cost_nusd: int
    unpriced: int

    @property
    def known_nusd(self) -> int | None:
        """The cost of those that have one; None where none has."""
        return self.cost_nusd if self.unpriced < self.requests else None

    @property
    def accepted_length(self) -> float | None:
        return 1 + self.spec_accepted / self.spec_steps if self.spec_steps else None


def breakdown(connection: Connection, slice: Slice, limit: int = 20) -> list[Place]:
    """The ``limit`` busiest pairs of model and backend, most requests first."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    by = ("model", "backend", "status")
    for (model, backend, status), values in sums(connection, slice, _SUMMED, by=by).items():
        into = found.setdefault((model, backend), dict.fromkeys((*_SUMMED, "failed"), 0))
        for name, value in values.items():
            into[name] += value
        if status in ("error", "lost"):
            into["failed"] += values["requests"]
    places = [Place(model, backend, **values) for (model, backend), values in found.items()]
    return sorted(places, key=lambda p: (-p.requests, p.model, p.backend))[:limit]
