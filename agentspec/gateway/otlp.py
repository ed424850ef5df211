"""The OpenTelemetry SDK, set up for one gateway worker: needs ``agentspec[otel]``."""

from __future__ import annotations

import os
import socket

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agentspec import __version__
from agentspec.settings_telemetry import TelemetrySettings


class Given(IdGenerator):
    """Hands out the ids that a request was given when it came."""

    def __init__(self) -> None:
        self._trace_id = self._span_id = 0

    def take(self, trace_id: str, span_id: str) -> None:
        """The ids (hex) of the span that is made next."""
        self._trace_id, self._span_id = int(trace_id, 16), int(span_id, 16)

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id


def tracer_provider(settings: TelemetrySettings) -> TracerProvider:
    """Sends spans in batches. What is recorded was decided before (``tracing.begin``)."""
    provider = TracerProvider(ALWAYS_ON, _resource(), shutdown_on_exit=False, id_generator=Given())
    exporter = OTLPSpanExporter(_below(settings, "v1/traces"), timeout=settings.timeout_s)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def meter_provider(settings: TelemetrySettings) -> MeterProvider:
    """Sends metrics every so often, and once more at the end."""
    exporter = OTLPMetricExporter(_below(settings, "v1/metrics"), timeout=settings.timeout_s)
    reader = PeriodicExportingMetricReader(exporter, settings.metrics_interval_s * 1000)
    return MeterProvider([reader], _resource(), shutdown_on_exit=False)


def _below(settings: TelemetrySettings, path: str) -> str:
    assert settings.otlp_url is not None
    return f"{settings.otlp_url.rstrip('/')}/{path}"


def _resource() -> Resource:
    """Who tells: each worker is an instance of its own, so that their counters add up. The usual
    variables (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) go before."""
    told = Resource.create({})
    ours = {
        "service.name": "agentspec",
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    named = {
        name: value
        for name, value in told.attributes.items()
        if not str(value).startswith("unknown_service")
    }
    return Resource({**ours, **named})
