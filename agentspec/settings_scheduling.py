"""Settings of the engine's scheduler (docs/scheduler.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class SchedulingSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What drafts are to serve, and by which rule they are verified (docs/scheduler.md).

    mode: "adaptive", or for comparison "blind", "off", "k1" to "k99", "table", "switch60".
    policy: "latency", "throughput", "slo" (``tpot_ms``: the milliseconds a token that interactive
        requests should see), or "auto": work a second, which follows the load.
    """

    mode: Annotated[str, Meta(pattern=r"^(adaptive|blind|off|k[1-9][0-9]?|table|switch60)$")] = (
        "adaptive"
    )
    policy: Literal["auto", "latency", "throughput", "slo"] = "auto"
    tpot_ms: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.policy == "slo" and self.tpot_ms is None:
            raise ValueError("tpot_ms is required where policy is 'slo'")
