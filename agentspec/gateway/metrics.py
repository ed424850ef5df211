"""The gateway's Prometheus metrics. All but the gauge follow from the ledger's rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from agentspec.store.record import RequestRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_WHERE = ("model", "backend")
_SLOW_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_QUEUE_S = (0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
POSITIONS = 8
"""Draft positions that have a label of their own; longer drafts are in the ledger's histograms."""

Counts = Mapping[str, int | None]
"""Kind -> how many; none of what is not known."""


class Metrics:
    """One registry an application. ``models``: the configured names; others count as "other".

    workers_dir: where several workers keep their values, so that each one's page shows the sum. The
    variable PROMETHEUS_MULTIPROC_DIR must have named it before prometheus_client was imported.
    """

    def __init__(self, models: frozenset[str], workers_dir: Path | None = None):
        self._models = models
        self._workers_dir = workers_dir
        self._registry = registry = CollectorRegistry()
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
        self._overhead = Histogram(
            "agentspec_gateway_overhead_seconds",
            "Part of it spent in the gateway itself",
            buckets=_FAST_S,
            registry=registry,
        )
        self._requests = self._counter("requests", "Finished requests", "status")
        self._ttft = self._histogram("ttft", "Time to the first token of streams", _SLOW_S)
        self._tpot = self._histogram("tpot", "Time per output token after the first", _TOKEN_S)
        self._e2e = self._histogram(
            "e2e", "Time from taking a request in to its last byte", _SLOW_S
        )
        self._queue = self._histogram("queue", "Waiting at the backend, where it tells", _QUEUE_S)
        self._tokens = self._counter("tokens", "Tokens by kind", "kind")
        self._steps = self._counter("spec_steps", "Target passes that verified drafts or sampled")
        self._drafted = self._counter("spec_drafted", "Drafted tokens sent to verification")
        self._accepted = self._counter("spec_accepted", "Drafted tokens accepted")
        self._positions = self._counter(
            "spec_accepted_position", "Steps that accepted the draft at that position", "position"
        )
        self._calls = self._counter("tool_calls", "Tool calls by what came of them", "outcome")
        self._cost = self._counter("cost_usd", "Cost of requests of known cost")
        self._unpriced = self._counter("requests_unpriced", "Finished requests of unknown cost")

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(f"agentspec_{name}", text, (*_WHERE, *more), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        full = f"agentspec_{name}_seconds"
        return Histogram(full, text, _WHERE, buckets=buckets, registry=self._registry)

    def observe(self, record: RequestRecord) -> None:
        """Count a finished request."""
        where = (record.model if record.model in self._models else "other", record.backend)
        self._requests.labels(*where, record.status).inc()
        for histogram, ms in (
            (self._e2e, record.e2e_ms),
            (self._ttft, record.ttft_ms),
            (self._tpot, record.tpot_ms),
            (self._queue, record.queue_ms),
        ):
            if ms is not None:
                histogram.labels(*where).observe(ms / 1000)
        if record.gateway_ms is not None:
            self._overhead.observe(record.gateway_ms / 1000)
        self._count(
            self._tokens,
            where,
            {
                "fresh": record.in_tok - record.cached_tok,
                "cached": record.cached_tok,
                "cache_write": record.cache_write_tok,
                "out": record.out_tok,
                "reasoning": record.reason_tok,
                "forced": record.forced_tok,
            },
        )
        self._count(
            self._calls,
            where,
            {
                "valid": record.tool_calls_valid,
                "invalid": record.tool_calls - record.tool_calls_valid,
                "mended": record.tool_calls_repaired,
                "dropped": record.tool_calls_dropped,
            },
        )
        if record.spec_steps:
            self._speculated(where, record)
        if record.cost_nusd is None:
            self._unpriced.labels(*where).inc()
        elif record.cost_nusd:
            self._cost.labels(*where).inc(record.cost_nusd / 1e9)

    def _speculated(self, where: tuple[str, str], record: RequestRecord) -> None:
        self._steps.labels(*where).inc(record.spec_steps)
        self._drafted.labels(*where).inc(record.spec_drafted)
        self._accepted.labels(*where).inc(record.spec_accepted)
        left = sum(record.spec_hist[1:])
        for place, steps in enumerate(record.spec_hist[1 : POSITIONS + 1], 1):
            if left > 0:
                self._positions.labels(*where, str(place)).inc(left)
            left -= steps

    def _count(self, counter: Counter, where: tuple[str, str], counts: Counts) -> None:
        for kind, count in counts.items():
            if count:
                counter.labels(*where, kind).inc(count)

    def page(self) -> bytes:
        """The text exposition format."""
        if self._workers_dir is None:
            return generate_latest(self._registry)
        summed = CollectorRegistry()
        MultiProcessCollector(summed, str(self._workers_dir))
        return generate_latest(summed)
