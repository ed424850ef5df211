"""What the explorer's chart is told to draw."""

from __future__ import annotations

import json
from typing import Any

from agentspec.dashboard import text
from agentspec.dashboard.chart_spec import OTHERS, ROWS, SERIES, Group, specification


def told(groups: list[Group], form=text.exact) -> dict[str, Any]:
    heads = ["Model", "Backend"][: len(groups[0].names)]
    return json.loads(specification("Requests", heads, groups, form))


def test_values_that_add_up_are_stacked_and_the_rest_of_the_colours_is_one():
    groups = [Group((f"m{i % 3}", f"b{i}"), 100 - i, 1, f"/rows/{i}") for i in range(20)]
    spec = told(groups)
    rows = spec["data"]["values"]
    assert len({row["second"] for row in rows}) == SERIES
    for model in ("m0", "m1", "m2"):
        assert sum(r["value"] for r in rows if r["first"] == model) == sum(
            g.value for g in groups if g.names[0] == model
        )
    others = [row for row in rows if row["second"] == OTHERS]
    assert {row["url"] for row in others} == {""}
    assert sum(row["value"] for row in others) == sum(100 - i for i in range(SERIES - 1, 20))
    assert spec["encoding"]["color"]["field"] == "second" and spec["params"][0]["bind"] == "legend"
    assert spec["encoding"]["y"]["sort"] == ["m0", "m1", "m2"]


def test_shares_are_not_added_but_laid_out():
    groups = [Group((m, b), 0.5, 3, "") for m in ("m0", "m1") for b in ("x", "y")]
    spec = told(groups, text.share)
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rect", "text"]
    assert {row["shown"] for row in spec["data"]["values"]} == {text.share(0.5)}


def test_a_long_list_is_cut_and_money_is_in_dollars():
    groups = [Group((f"m{i:03d}",), (1000 - i) * 10**9, 1, "") for i in range(400)]
    spec = told(groups, text.usd)
    rows = spec["data"]["values"]
    assert [row["value"] for row in rows] == [1000 - i for i in range(ROWS)]
    assert rows[0]["shown"] == "$1,000.00" and spec["encoding"]["x"]["axis"]["format"][0] == "$"
