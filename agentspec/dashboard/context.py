"""What the pages are told beside the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentspec.settings import PoolSettings


@dataclass(frozen=True, slots=True)
class EngineState:
    """A backend as it answers now. health: "ok", or what is wrong; "not asked" for a vendor's,
    where asking costs money. running, waiting: requests; kv_used: share of its memory for K/V
    pages; accepted_length: tokens a step lately; None where it doesn't tell, as version."""

    backend: str
    kind: str
    address: str
    health: str
    version: str | None = None
    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None
    accepted_length: float | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """pools: what self-hosted backends cost by the hour. control_window_ms: the length of the
    engine's control windows. engines: asks every backend how it is; blocks."""

    pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    control_window_ms: int = 30_000
    engines: Callable[[], Sequence[EngineState]] = tuple
