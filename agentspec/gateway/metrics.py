"""The gateway's Prometheus metrics. All but the gauge follow from the ledger's rows."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from agentspec.store.record import RequestRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SLOW_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Metrics:
    """One registry an application. ``models``: the configured names; others count as "other".

    workers_dir: where several workers keep their values, so that each one's page shows the sum. The
    variable PROMETHEUS_MULTIPROC_DIR must have named it before prometheus_client was imported.
    """

    def __init__(self, models: frozenset[str], workers_dir: Path | None = None):
        self._models = models
        self._workers_dir = workers_dir
        self._registry = registry = CollectorRegistry()
        where = ("model", "backend")
        self.in_flight = Gauge(
            "agentspec_requests_in_flight",
            "Requests being answered",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.journal_failures = Counter(
            "agentspec_journal_failures",
            "Ledger records that could not be written",
            registry=registry,
        )
        self._requests = Counter(
            "agentspec_requests", "Finished requests", (*where, "status"), registry=registry
        )
        self._ttft = Histogram(
            "agentspec_ttft_seconds",
            "Time to the first token of streams",
            where,
            buckets=_SLOW_S,
            registry=registry,
        )
        self._e2e = Histogram(
            "agentspec_e2e_seconds",
            "Time from taking a request in to its last byte",
            where,
            buckets=_SLOW_S,
            registry=registry,
        )
        self._overhead = Histogram(
            "agentspec_gateway_overhead_seconds",
            "Part of it spent in the gateway itself",
            buckets=_FAST_S,
            registry=registry,
        )
        self._tokens = Counter(
            "agentspec_tokens", "Tokens by kind", (*where, "kind"), registry=registry
        )
        self._spec = {
            name: Counter(f"agentspec_spec_{name}", text, where, registry=registry)
            for name, text in (
                ("steps", "Target passes that verified drafts or sampled"),
                ("drafted", "Drafted tokens sent to verification"),
                ("accepted", "Drafted tokens accepted"),
            )
        }

    def observe(self, record: RequestRecord) -> None:
        """Count a finished request."""
        where = (record.model if record.model in self._models else "other", record.backend)
        self._requests.labels(*where, record.status).inc()
        if record.e2e_ms is not None:
            self._e2e.labels(*where).observe(record.e2e_ms / 1000)
        if record.ttft_ms is not None:
            self._ttft.labels(*where).observe(record.ttft_ms / 1000)
        if record.gateway_ms is not None:
            self._overhead.observe(record.gateway_ms / 1000)
        kinds = {
            "fresh": record.in_tok - record.cached_tok,
            "cached": record.cached_tok,
            "out": record.out_tok,
            "reasoning": record.reason_tok,
            "forced": record.forced_tok,
        }
        for kind, count in kinds.items():
            if count:
                self._tokens.labels(*where, kind).inc(count)
        if record.spec_steps:
            self._spec["steps"].labels(*where).inc(record.spec_steps)
            self._spec["drafted"].labels(*where).inc(record.spec_drafted)
            self._spec["accepted"].labels(*where).inc(record.spec_accepted)

    def page(self) -> bytes:
        """The text exposition format."""
        if self._workers_dir is None:
            return generate_latest(self._registry)
        summed = CollectorRegistry()
        MultiProcessCollector(summed, str(self._workers_dir))
        return generate_latest(summed)
