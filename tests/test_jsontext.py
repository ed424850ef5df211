"""What is written as JSON is JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from agentspec import jsontext
from agentspec.bench import report


def strict(text: str):
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_number_that_is_none_is_null():
    value = {"a": math.inf, "b": (1.5, math.nan), "c": {"d": [-math.inf, "Infinity"]}, "e": 7}
    assert strict(jsontext.dumps(value, indent=1)) == {
        "a": None,
        "b": [1.5, None],
        "c": {"d": [None, "Infinity"]},
        "e": 7,
    }


def test_a_benchs_file(tmp_path: Path):
    report.write(tmp_path / "f.json", report.build([{"ratio": math.inf}]))
    assert strict((tmp_path / "f.json").read_text())["results"] == [{"ratio": None}]
