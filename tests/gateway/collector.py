"""A collector on loopback: what it was sent over OTLP/HTTP, decoded by the protocol's own types."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


def plain(attributes: Any) -> dict[str, Any]:
    """OTLP attributes as Python values."""
    return {one.key: _value(one.value) for one in _each(attributes)}


def _each(attributes: Any) -> Iterator[KeyValue]:
    yield from attributes


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


@dataclass
class Collector:
    url: str = ""
    spans: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)
    hanging: bool = False

    def named(self, name: str) -> Any:
        """The one span of that name."""
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]


@contextlib.asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    collector = Collector()
    released = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if collector.hanging:
            await released.wait()
        if request.path == "/v1/traces":
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                collector.resources.append(plain(part.resource.attributes))
                collector.spans += [one for scope in part.scope_spans for one in scope.spans]
        else:
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in part.scope_metrics:
                    collector.metrics |= {one.name: one for one in scope.metrics}
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    app.router.add_post("/v1/metrics", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    collector.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    try:
        yield collector
    finally:
        released.set()
        await runner.cleanup()
