"""A snapshot of the engine for health checks and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentspec.wire.extension import BusyTime

from .watch import SpeculationStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """pages_*: the page pool's three states. busy_us: time with work, the sum over requests.

    Totals since start: steps, forwards, preemptions; prompt_tokens of admitted requests and
    prefix_hit_tokens of them; output_tokens; requests ended, by finish reason.
    """

    running: int
    waiting: int
    pages_used: int
    pages_cached: int
    pages_free: int
    busy_us: BusyTime
    steps: int = 0
    forwards: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    prefix_hit_tokens: int = 0
    output_tokens: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
