"""The page on metrics and the Grafana dashboard name the metrics that there are, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentspec.engine.metrics import PREFIX, EngineMetrics
from agentspec.engine.stats import EngineStats
from agentspec.engine.watch import SpeculationStats
from agentspec.gateway.metrics import POSITIONS, Metrics
from agentspec.store.record import RequestRecord
from agentspec.wire.extension import BusyTime

DOCS = Path(__file__).parents[2] / "docs"
GATEWAY, ENGINE = (DOCS / "metrics.md").read_text().split("The engine process has")


def counted() -> Metrics:
    metrics = Metrics(frozenset({"m"}))
    times = {"ttft_ms": 1.0, "e2e_ms": 2.0, "gateway_ms": 0.1, "tpot_ms": 30.0, "queue_ms": 4.0}
    spec = {"spec_steps": 6, "spec_drafted": 9, "spec_accepted": 7, "spec_hist": [2, 1, 3]}
    record = RequestRecord(id="r", ts_ms=1, model="m", backend="b", in_tok=9, out_tok=3)
    calls = {"tool_calls": 3, "tool_calls_valid": 2, "tool_calls_repaired": 1}
    for name, value in (times | spec | calls).items():
        setattr(record, name, value)
    metrics.observe(record)
    record.cost_nusd = 2_500_000_000
    metrics.observe(record)
    return metrics


def families(page: str) -> dict[str, tuple[str, set[str]]]:
    """Family as PromQL names it -> its type and labels."""
    found = {}
    for family in text_string_to_metric_families(page):
        if family.name.endswith("_created"):  # when a counter began, beside each
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for s in family.samples for label in s.labels} - {"le"}
        found[name] = (family.type, labels)
    return found


def told(text: str) -> dict[str, tuple[str, set[str]]]:
    rows = re.findall(r"^\| (`[`\w, ]+`) \| (\w+) \|([^|]*)\|", text, re.M)
    return {
        name: (kind, set(labels.strip().split(", ")) - {""})
        for names, kind, labels in rows
        for name in re.findall(r"\w+", names)
    }


def test_the_page_names_every_metric_of_the_gateway_with_its_labels():
    assert told(GATEWAY) == families(counted().page().decode())


def test_the_page_names_every_metric_of_the_engine():
    bins = ((1, 0.5, 1),) * 10
    seen = SpeculationStats({1: 1}, {1: 1}, {"none": 1}, {"none": 0.1}, bins)
    names = ("running", "waiting", "pages_used", "pages_cached", "pages_free")
    state = dict.fromkeys(names, 1)
    page, _ = EngineMetrics().page(EngineStats(**state, busy_us=BusyTime(), speculation=seen))
    kinds = {name.removeprefix(PREFIX): kind for name, (kind, _) in families(page.decode()).items()}
    assert {name: kind for name, (kind, _) in told(ENGINE).items()} == kinds


def test_numbers_follow_from_the_rows():
    """Acceptance at a position i: steps that accepted i drafts or more; a cost nobody knows is
    counted, and in no sum."""
    page = counted().page().decode()

    def value(name: str, **labels: str) -> float:
        told = "".join(f',{key}="{one}"' for key, one in sorted(labels.items()))
        (found,) = re.findall(rf'^{name}{{backend="b",model="m"{told}}} (\S+)$', page, re.M)
        return float(found)

    assert [value("agentspec_spec_accepted_position_total", position=str(i)) for i in (1, 2)] == [
        2 * 4,
        2 * 3,
    ]
    assert value("agentspec_cost_usd_total") == pytest.approx(2.5)
    assert value("agentspec_requests_unpriced_total") == 1
    outcomes = {"valid": 4, "invalid": 2, "mended": 2}
    for outcome, count in outcomes.items():
        assert value("agentspec_tool_calls_total", outcome=outcome) == count
    assert value("agentspec_tpot_seconds_sum") == pytest.approx(0.06)


def test_labels_of_positions_are_bounded():
    metrics = Metrics(frozenset())
    record = RequestRecord(id="r", ts_ms=1, spec_steps=40, spec_hist=[0] * 39 + [40])
    metrics.observe(record)
    assert len(set(re.findall(r'position="(\d+)"', metrics.page().decode()))) == POSITIONS


def test_grafana_asks_for_what_there_is():
    dashboard = json.loads((DOCS / "grafana" / "prometheus.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) > 8
    known = families(counted().page().decode())
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert expression.count("(") == expression.count(")")
            names = set(re.findall(r"agentspec_\w+", expression))
            asked |= {name.removesuffix("_bucket") for name in names}
    assert asked == set(known)


@pytest.mark.parametrize("name", ["prometheus", "postgresql"])
def test_grafana_s_panels_are_apart(name: str):
    dashboard = json.loads((DOCS / "grafana" / f"{name}.json").read_text())
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y)
        for p in places
        for x in range(p["x"], p["x"] + p["w"])
        for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
