"""What is counted of speculation, and shown."""

from __future__ import annotations

from agentspec.engine.metrics import EngineMetrics
from agentspec.engine.watch import SpeculationStats
from tests.engine.core.world import World, make


def test_counts_agree_with_the_requests_reports():
    world = World()
    told = world.run(
        make("a", sources=("oracle",), max_tokens=30),
        make("b", sources=("echo",), max_tokens=20),
        make("c", max_tokens=9),
    )
    stats = world.engine.stats().speculation
    reports = [t.report for t in told.values()]
    assert stats.drafted_tokens == sum(r.totals()[0] for r in reports) > 0
    assert stats.accepted_tokens == sum(r.totals()[1] for r in reports) > 0
    assert sum(stats.widths.values()) == sum(stats.accepted.values())
    assert set(stats.steps) == set(stats.step_s) >= {"echo+oracle"}
    assert sum(stats.steps.values()) <= world.engine.stats().steps
    assert all(seconds > 0 for seconds in stats.step_s.values())
    assert sum(count for count, _, _ in stats.bins) <= stats.drafted_tokens
    assert all(0 <= stood <= count for count, _, stood in stats.bins)


def test_the_page_shows_them():
    world = World()
    world.run(make("a", sources=("oracle",), max_tokens=30))
    page, _ = EngineMetrics().page(world.engine.stats())
    lines = dict(
        line.rsplit(" ", 1) for line in page.decode().splitlines() if not line.startswith("#")
    )
    stats = world.engine.stats().speculation
    rate = float(lines["agentspec_engine_spec_decode_draft_acceptance_rate"])
    assert rate == stats.accepted_tokens / stats.drafted_tokens
    wasted = float(lines["agentspec_engine_wasted_tokens_total"])
    assert wasted == stats.drafted_tokens - stats.accepted_tokens
    for count, times in stats.widths.items():
        assert float(lines[f'agentspec_engine_verify_width_total{{tokens="{count}"}}']) == times
    assert float(lines['agentspec_engine_step_number_total{sources="oracle"}']) > 0


def test_no_rate_before_the_first_draft():
    assert SpeculationStats().acceptance_rate is None
