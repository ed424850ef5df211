"""The command on the embedded model, as small as it can be: every kind of source at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentspec import cli
from agentspec.bench.draft import Plan, write_random
from agentspec.engine.exact_runner import ExactRunner
from agentspec.settings import EngineSettings

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def draft(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DSpark of random weights: it drafts, and is hardly ever right."""
    folder = tmp_path_factory.mktemp("dspark")
    settings = EngineSettings(threads=1, kv_tokens=64, context_tokens=64)
    config = ExactRunner.load(settings, model_path).model.config
    plan = Plan(count=1, context=0, layers=[1], head_rows=[0], block=4, rank=8, threads=1)
    return write_random(folder, config, plan, 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Short ones: reading a prompt is most of what a tiny run costs."""
    parameters = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        "required": ["path", "line"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "read_line", "parameters": parameters}}
    said = [{"role": "user", "content": "Read line 7 of src/main.py."}]
    call = {"id": "t", "messages": said, "tools": [tool], "tool_choice": "required"}
    text = "".join(f"value_{i} = read('value_{i}')\n" for i in range(4))
    asked = [{"role": "user", "content": f"Repeat:\n{text}"}]
    (tmp_path / "tool.jsonl").write_text(json.dumps(call) + "\n")
    edit = {"id": "e", "messages": asked, "answer": text}
    (tmp_path / "edit.jsonl").write_text(json.dumps(edit) + "\n")
    return tmp_path


def test_every_source_says_what_plain_decoding_says(model_path: Path, draft: Path, prompts: Path):
    out, page = prompts / "compare.json", prompts / "compare.md"
    arguments = ["--target", str(model_path), "--drafts", f"dspark={draft}", "--n", "1"]
    arguments += ["--data", str(prompts)]
    arguments += ["--methods", "none,suffix,dspark", "--workloads", "tool,edit-replay"]
    arguments += ["--max-tokens", "24", "--temperature", "0,1", "--threads", "1"]
    arguments += ["--schedule", "k3", "--json", str(out), "--markdown", str(page)]
    assert cli.main(["compare", *arguments]) == 0
    document = json.loads(out.read_text())
    assert document["exact"] and document["other_text"] == []
    assert document["checked"] == 2 * (3 + 2), "all but plain decoding itself"
    rows = {
        (r["workload"], r["temperature"], r["method"], r["masked"]): r for r in document["results"]
    }
    assert len(rows) == len(document["results"]) == 2 * (4 + 3)
    masked, blind = (rows["tool", 0.0, "dspark", knows] for knows in (True, False))
    assert masked["forced_tokens"] == blind["forced_tokens"] > 0
    replayed = rows["edit-replay", 0.0, "dspark", False]
    assert replayed["drafted"] > 0 and replayed["draft_ms"] > 0 and replayed["verify_ms"] > 0
    assert rows["edit-replay", 0.0, "suffix", False]["accepted_length"] > 1
    fixed = {"method", "workload", "masked", "temperature", "accepted_length", "ci95", "speedup"}
    assert all(fixed | {"n"} <= row.keys() for row in document["results"])
    assert "## tool, T = 1, k3" in page.read_text()
