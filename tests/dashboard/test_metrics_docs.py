"""The page on metrics and the Grafana dashboard name what the gateway's page has, and no more."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from agentspec.gateway.metrics import Metrics
from agentspec.store.record import RequestRecord

DOCS = Path(__file__).parents[2] / "docs"


def exposed() -> dict[str, set[str]]:
    """Family as PromQL names it -> its labels, once a request has been counted."""
    metrics = Metrics(frozenset({"m"}))
    times = {"ttft_ms": 1.0, "e2e_ms": 2.0, "gateway_ms": 0.1}
    spec = {"spec_steps": 2, "spec_drafted": 3, "spec_accepted": 1}
    record = RequestRecord(id="r", ts_ms=1, model="m", backend="b", in_tok=9, out_tok=3)
    for name, value in (times | spec).items():
        setattr(record, name, value)
    metrics.observe(record)
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        if family.name.endswith("_created"):  # when a counter began, beside each
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = {label for s in family.samples for label in s.labels} - {"le"}
    return found


def test_the_page_names_every_metric_with_its_labels():
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|([^|]*)\|", (DOCS / "metrics.md").read_text(), re.M)
    told = {name: set(labels.strip().split(", ")) - {""} for name, labels in rows}
    assert told == exposed()


def test_grafana_asks_for_what_there_is():
    dashboard = json.loads((DOCS / "grafana" / "prometheus.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) > 8
    known = exposed()
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert expression.count("(") == expression.count(")")
            names = set(re.findall(r"agentspec_\w+", expression))
            asked |= {name.removesuffix("_bucket") for name in names}
    assert asked == set(known)
