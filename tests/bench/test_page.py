"""Pages out of measured files, and what a process's memory is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentspec.bench import page, report, start


def test_a_page_says_where_its_figures_come_from(tmp_path: Path):
    rows = [
        {"engine": "a", "tok_s": 123.456, "loss": 0.00321, "n": 6, "spread": {"min": 1}},
        {"engine": "b", "tok_s": None, "loss": -0.5, "n": 0, "spread": None},
    ]
    document = report.build(rows, versions={"llama-cpp-python": "0.3.36"})
    document |= {
        "command": "agentspec bench engine --n 6",
        "commit": "0123456789abcdef" * 2 + "f" * 8,
    }
    document["commit"] += "+"
    (tmp_path / "a.json").write_text(json.dumps(document))
    text = page.page([tmp_path / "a.json"])
    assert "## bench engine\n\n`agentspec bench engine --n 6`\n" in text
    assert "commit 0123456789+; peers: llama-cpp-python 0.3.36;" in text
    assert document["machine"]["cpu"] in text
    assert "| engine | tok_s | loss | n |\n| --- | --- | --- | --- |" in text
    assert "| a | 123.5 | 0.0032 | 6 |\n| b |  | -0.5000 | 0 |" in text


def test_a_column_that_only_a_later_row_fills_is_shown_and_an_empty_one_is_not(tmp_path: Path):
    rows = [
        {"what": "fill", "rows_s": 15000.5, "p95_ms": None, "failed": None},
        {"what": "totals", "rows_s": None, "p95_ms": 3.5, "failed": None, "lost": 0},
    ]
    document = report.build(rows, versions={}) | {"command": "agentspec route bench --n 2"}
    (tmp_path / "a.json").write_text(json.dumps(document))
    text = page.page([tmp_path / "a.json"])
    assert "## route bench\n" in text
    assert "| what | rows_s | p95_ms | lost |" in text
    assert "| fill | 15000.5 |  |  |\n| totals |  | 3.50 | 0 |" in text


def test_memory_of_this_process():
    held = bytearray(64 << 20)
    now, most = start.memory_mib(os.getpid())
    assert len(held) >> 20 < now <= most


def test_two_engines_that_never_come_up_are_an_error(tmp_path: Path):
    bad = tmp_path / "bad.toml"
    bad.write_text("[engine]\nweights = 'nowhere.gguf'\n")
    with pytest.raises(start.processes.ProcessFailed, match="ended with 2"):
        start.pair(1, 1, str(bad))
