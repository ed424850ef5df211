"""Speculation on the metrics page: widths, waste, acceptance, calibration, step times."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from .watch import SpeculationStats

ACCEPTANCE_RATE = "spec_decode_draft_acceptance_rate"
"""As vLLM names it, so that dashboards and routers that know it find it."""


def families(stats: SpeculationStats, prefix: str) -> Iterator[Metric]:
    """Every metric of ``stats``; names begin with ``prefix``."""
    for name, what, counts in (
        ("verify_width", "Sequence steps by drafted tokens verified", stats.widths),
        ("verify_accepted", "Sequence steps by drafted tokens that stood", stats.accepted),
    ):
        family = CounterMetricFamily(prefix + name, what, labels=["tokens"])
        for count, times in sorted(counts.items()):
            family.add_metric([str(count)], times)
        yield family
    wasted = stats.drafted_tokens - stats.accepted_tokens
    yield CounterMetricFamily(prefix + "wasted_tokens", "Drafted tokens verified in vain", wasted)
    yield from _steps(stats, prefix)
    yield from _calibration(stats, prefix)
    rate = stats.acceptance_rate
    if rate is not None:
        yield GaugeMetricFamily(prefix + ACCEPTANCE_RATE, "Share of verified drafts", rate)


def _steps(stats: SpeculationStats, prefix: str) -> Iterator[Metric]:
    number = CounterMetricFamily(
        prefix + "step_number", "Steps by draft sources", labels=["sources"]
    )
    seconds = CounterMetricFamily(prefix + "step_seconds", "Time of them", labels=["sources"])
    for sources, count in stats.steps.items():
        number.add_metric([sources], count)
        seconds.add_metric([sources], stats.step_s[sources])
    yield number
    yield seconds


def _calibration(stats: SpeculationStats, prefix: str) -> Iterator[Metric]:
    """By tenth of predicted survival: were the odds right, predicted and accepted are equal."""
    names = ("survival_tokens", "survival_predicted", "survival_accepted")
    found = [
        CounterMetricFamily(prefix + name, "Drafted tokens by predicted survival", labels=["bin"])
        for name in names
    ]
    for place, values in enumerate(stats.bins):
        for family, value in zip(found, values, strict=True):
            family.add_metric([f"{place / 10:.1f}"], value)
    yield from found
