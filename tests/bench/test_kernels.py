"""``bench kernels``: its rows, on a tiny plan."""

import pytest

from agentspec.bench import kernels


@pytest.mark.model
def test_rows_of_a_tiny_plan(model_path):
    plan = kernels.Plan(
        count=2,
        contexts=[48],
        rows=[1, 8],
        ops=["all", "attend"],
        prefill=True,
        threads=1,
        isa=None,
        weights=str(model_path),
    )
    document = kernels.run(plan)
    *timed, ratio = document["results"]
    assert [(row["what"], row["op"], row["rows"]) for row in timed] == [
        ("prefill", "all", 48),
        ("pass", "all", 1),
        ("pass", "attend", 1),
        ("pass", "all", 8),
        ("pass", "attend", 8),
    ]
    assert all(0 < row["min_ms"] <= row["median_ms"] <= row["max_ms"] for row in timed)
    assert {row["n"] for row in timed} == {2}
    whole = {row["rows"]: row["min_ms"] for row in timed if row["op"] == "all"}
    assert ratio["what"] == "verify-8 over verify-1"
    assert ratio["ratio"] == pytest.approx(whole[8] / whole[1])
    assert document["kernels"].startswith("agentspec-cpu-")
