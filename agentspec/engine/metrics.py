"""Prometheus metrics of the engine process, in a registry of their own.

What the engine counts itself is taken over at each scrape (``EngineStats``); requests and their
times are counted here as they end.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from .metrics_speculation import families
from .request import Output
from .stats import EngineStats

PREFIX = "agentspec_engine_"
_FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SLOW_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class EngineMetrics:
    """Counters and histograms of one engine. Used on the event loop's thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._stats = _StatsCollector()
        self._registry.register(self._stats)
        self._requests = self._counter("requests", "Chat requests by how they ended", "status")
        self._drafted = self._counter("drafted_tokens", "Tokens proposed, by source", "source")
        self._accepted = self._counter("accepted_tokens", "Proposals that stood", "source")
        self._redecoded = Counter(
            PREFIX + "redecoded_tokens",
            "Tokens taken back unsent, since no answer under the schema goes on so",
            registry=self._registry,
        )
        self._saved = Counter(
            PREFIX + "tool_text_saved_chars",
            "Characters of tools that prompts were spared",
            registry=self._registry,
        )
        self._ttft = self._histogram("ttft_seconds", "Arrival to first token", _SLOW_S)
        self._tpot = self._histogram("tpot_seconds", "Time a token after the first", _FAST_S)
        self._queue = self._histogram("queue_seconds", "Waiting for a place", _SLOW_S)

    def _counter(self, name: str, what: str, label: str) -> Counter:
        return Counter(PREFIX + name, what, [label], registry=self._registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(PREFIX + name, what, buckets=buckets, registry=self._registry)

    def request_ended(self, status: str) -> None:
        """status: "ok", "refused" (before its start), "failed" or "cancelled" (by the client)."""
        self._requests.labels(status).inc()

    def tools_shown(self, saved_chars: int) -> None:
        self._saved.inc(saved_chars)

    def sequence_ended(self, last: Output) -> None:
        """The last output of any sequence, also of one whose client has gone."""
        if last.report is None:
            return
        self._queue.observe(last.report.queue_us / 1e6)
        self._redecoded.inc(last.report.redecoded)
        for source, count in last.report.sources.items():
            self._drafted.labels(source).inc(count.drafted)
            self._accepted.labels(source).inc(count.accepted)

    def first_token(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def token_time(self, seconds: float) -> None:
        self._tpot.observe(seconds)

    def page(self, stats: EngineStats | None) -> tuple[bytes, str]:
        """(text, content type). stats: None while the engine cannot tell."""
        self._stats.stats = stats
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _StatsCollector(Collector):
    """The engine's own counts as metrics."""

    def __init__(self) -> None:
        self.stats: EngineStats | None = None

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        if self.stats is None:
            return
        stats = self.stats
        yield GaugeMetricFamily(PREFIX + "running", "Sequences that run", stats.running)
        yield GaugeMetricFamily(PREFIX + "waiting", "Sequences that wait", stats.waiting)
        pages = GaugeMetricFamily(PREFIX + "pages", "Pages of the K/V pool", labels=["state"])
        counted = {state: getattr(stats, f"pages_{state}") for state in ("used", "cached", "free")}
        for state, count in counted.items():
            pages.add_metric([state], count)
        yield pages
        share = counted["used"] / max(1, sum(counted.values()))
        yield GaugeMetricFamily(PREFIX + "kv_used_ratio", "Share of the K/V pool in use", share)
        for name, what, value in (
            ("steps", "Engine steps", stats.steps),
            ("forwards", "Forward passes", stats.forwards),
            ("preemptions", "Sequences that lost their pages", stats.preemptions),
            ("prompt_tokens", "Prompt tokens, cached ones included", stats.prompt_tokens),
            ("cached_tokens", "Prompt tokens found in the cache", stats.prefix_hit_tokens),
            ("output_tokens", "Tokens generated", stats.output_tokens),
        ):
            yield CounterMetricFamily(PREFIX + name, what, value)
        busy = CounterMetricFamily(PREFIX + "busy_seconds", "Time with work", labels=["phase"])
        for phase in stats.busy_us.__struct_fields__:
            busy.add_metric([phase], getattr(stats.busy_us, phase) / 1e6)
        yield busy
        yield from families(stats.speculation, PREFIX)
