"""Settings of what a self-hosted backend costs (docs/cost.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

_Count = Annotated[int, Meta(ge=0)]
_Usd = Annotated[float, Meta(ge=0)]
_Factor = Annotated[float, Meta(ge=1.0)]
_Instant = Annotated[datetime, Meta(tz=True)]


class PoolSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a self-hosted backend costs by the hour, busy or idle (docs/cost.md).

    gpus, gpu_usd_per_h: rented by the hour; host_usd_per_h: everything beside the GPUs. overhead:
        factor on it all (network, storage, staff). replicas: engines that work at the same time;
        gpus and all prices are those of all of them together.
    capex_usd over amortisation_h, and kw * pue * usd_per_kwh: owned hardware, added to the rest.
    from_time, until_time: when it was provisioned, where not always.
    cached_weight: prefill time of a cached token as a share of a fresh one's.
    """

    gpus: _Count = 0
    gpu_usd_per_h: _Usd = 0.0
    host_usd_per_h: _Usd = 0.0
    capex_usd: _Usd = 0.0
    amortisation_h: Annotated[float, Meta(gt=0)] = 26280.0
    kw: _Usd = 0.0
    pue: _Factor = 1.0
    usd_per_kwh: _Usd = 0.0
    overhead: _Factor = 1.0
    replicas: Annotated[int, Meta(gt=0)] = 1
    from_time: _Instant | None = None
    until_time: _Instant | None = None
    cached_weight: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
