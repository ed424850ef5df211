"""Settings of what is sent to a collector (docs/metrics.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class TelemetrySettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """OpenTelemetry's traces and metrics of requests, over OTLP/HTTP (docs/metrics.md).

    otlp_url: the collector's origin, such as "http://127.0.0.1:4318"; None: nothing is sent. What
        it wants as a credential stands in the variable OTEL_EXPORTER_OTLP_HEADERS.
    sample: the share of traces that are recorded, of those that begin here.
    names: of the metrics that have two: "v1.41" of the semantic conventions, or those of the
        conventions' own repository since ("latest").
    """

    otlp_url: Annotated[str, Meta(pattern=r"^https?://[^/\s]+(/\S*)?$")] | None = None
    traces: bool = True
    metrics: bool = True
    sample: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    metrics_interval_s: Annotated[float, Meta(gt=0)] = 30.0
    timeout_s: Annotated[float, Meta(gt=0)] = 5.0
    names: Literal["v1.41", "latest"] = "v1.41"
