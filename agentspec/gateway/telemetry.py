"""Finished requests as OpenTelemetry spans and metrics, sent to a collector over OTLP/HTTP.

What they are called stands in ``genai.py``. Spans are made from the finished row, with the ids that
``tracing.py`` gave the request when it came and its times, so that nothing happens on the way of an
answer; the SDK's own threads send them. A collector that is away costs spans, never a request.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from agentspec.logs import REQUESTS
from agentspec.settings import Settings, SettingsError
from agentspec.store.record import RequestRecord
from agentspec.tracing import Trace, current

from . import genai

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

requests_log = logging.getLogger(REQUESTS)
SCOPE = "agentspec"
CLOSING_S = 3.0
_LOGGED = (
    "session_id",
    "client",
    "key_id",
    "surface",
    "model",
    "backend",
    "status",
    "http_status",
    "error_code",
    "in_tok",
    "cached_tok",
    "out_tok",
    "spec_drafted",
    "spec_accepted",
    "ttft_ms",
    "e2e_ms",
    "cost_nusd",
)


def log_request(record: RequestRecord) -> None:
    """A line for a finished request, where the log asks for such."""
    if requests_log.isEnabledFor(logging.INFO):
        fields = {"request_id": record.id} | {name: getattr(record, name) for name in _LOGGED}
        requests_log.info("request %s: %s", record.id, record.status, extra={"fields": fields})


class Closes(Protocol):
    """A provider of the SDK, which sends what it still holds when it is shut down."""

    def shutdown(self) -> Any: ...


class Spans:
    """Spans of finished requests. provider: made with ``Given()`` as its generator of ids."""

    def __init__(self, provider: TracerProvider, names: str, addresses: dict[str, tuple[str, int]]):
        self._tracer = provider.get_tracer(SCOPE)
        self._given = provider.id_generator
        self._names = names
        self._addresses = addresses

    def __call__(self, record: RequestRecord) -> None:
        from opentelemetry.trace import SpanKind

        trace = current.get()
        if trace is None or not trace.recorded:
            return
        span = genai.request_span(record)
        self._make(trace, trace.span_id, trace.parent_id, SpanKind.SERVER, span, record)
        if genai.was_sent_on(record):
            address = self._addresses.get(record.backend)
            span = genai.call_span(record, self._names, address)
            self._make(trace, trace.call_id, trace.span_id, SpanKind.CLIENT, span, record)

    def _make(
        self,
        trace: Trace,
        span_id: str,
        parent_id: str,
        kind: Any,
        named: tuple[str, genai.Attributes],
        record: RequestRecord,
    ) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        self._given.take(trace.trace_id, span_id)  # type: ignore[attr-defined]
        began_ns = record.ts_ms * 1_000_000
        span = self._tracer.start_span(
            named[0],
            context=_parent(trace.trace_id, parent_id),
            kind=kind,
            attributes=named[1],
            start_time=began_ns,
        )
        ended_ns = began_ns + round((record.e2e_ms or 0.0) * 1e6)
        if kind == SpanKind.CLIENT:
            for name, attributes in genai.failed_attempts(record):
                span.add_event(name, attributes, ended_ns)
        if record.status == "error":
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=ended_ns)


def _parent(trace_id: str, span_id: str) -> Any:
    """The context below a span; a fresh one where there is none."""
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if not span_id:
        return Context()
    above = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(above), Context())


class Meters:
    """Metrics of finished requests. models: the configured names."""

    def __init__(self, provider: MeterProvider, names: str, models: frozenset[str]):
        meter = provider.get_meter(SCOPE)
        self._names = names
        self._models = models
        self._add: dict[str, Callable[[float, genai.Attributes], None]] = {}
        for one in genai.instruments(names):
            if one.buckets is None:
                self._add[one.name] = meter.create_counter(one.name, one.unit, one.text).add
            else:
                self._add[one.name] = meter.create_histogram(
                    one.name,
                    one.unit,
                    one.text,
                    explicit_bucket_boundaries_advisory=list(one.buckets),
                ).record

    def __call__(self, record: RequestRecord) -> None:
        for instrument, value, attributes in genai.measures(record, self._names, self._models):
            self._add[instrument.name](value, attributes)


class Telemetry:
    """What is told of each finished request (``settle``), and what must be closed at the end."""

    def __init__(
        self,
        settle: tuple[Callable[[RequestRecord], None], ...],
        providers: tuple[Closes, ...] = (),
    ):
        self.settle = settle
        self._providers = providers

    async def aclose(self) -> None:
        """Send what is left, for at most ``CLOSING_S``; a collector that is away holds up nothing
        longer than that."""
        closing = [
            threading.Thread(target=one.shutdown, daemon=True, name="telemetry-closing")
            for one in self._providers
        ]
        for thread in closing:
            thread.start()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CLOSING_S
        while any(thread.is_alive() for thread in closing) and loop.time() < until_s:
            await asyncio.sleep(0.01)


def telemetry_for(settings: Settings) -> Telemetry:
    """As the settings say. Raises ``SettingsError`` where the SDK is needed and missing."""
    asked = settings.telemetry
    if asked.otlp_url is None:
        return Telemetry((log_request,))
    try:
        from .otlp import meter_provider, tracer_provider
    except ImportError as error:
        raise SettingsError(
            f"telemetry.otlp_url needs pip install 'agentspec[otel]' ({error.name} is missing)"
        ) from None
    settle: list[Callable[[RequestRecord], None]] = [log_request]
    providers: list[Closes] = []
    if asked.traces:
        spans = tracer_provider(asked)
        settle.append(Spans(spans, asked.names, _addresses(settings)))
        providers.append(spans)
    if asked.metrics:
        meters = meter_provider(asked)
        settle.append(Meters(meters, asked.names, frozenset(settings.models)))
        providers.append(meters)
    return Telemetry(tuple(settle), tuple(providers))


def _addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Where each backend with a URL is."""
    found = {}
    for name, backend in settings.backends.items():
        url = urlsplit(backend.url or "")
        if url.hostname:
            found[name] = (url.hostname, url.port or (443 if url.scheme == "https" else 80))
    return found
