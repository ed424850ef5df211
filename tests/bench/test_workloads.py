"""The shipped prompts are requests that the wire accepts, and no placeholder is left in them."""

from __future__ import annotations

import gzip
import json

import pytest

from agentspec.bench.workloads import PROMPTS, REPLAY, WORKLOADS, BenchError, load
from agentspec.wire.chat import decode_request


def count(workload: str) -> int:
    return len((PROMPTS / f"{workload}.jsonl").read_text().splitlines())


@pytest.mark.parametrize("workload", WORKLOADS)
def test_prompts_are_requests(workload: str):
    prompts = load(workload, count(workload))
    assert len(prompts) >= 6
    assert len({p.id for p in prompts}) == len(prompts)
    for prompt in prompts:
        decode_request(json.dumps({"model": "m", **prompt.body}).encode())
        assert "{file}" not in json.dumps(prompt.body)
        assert bool(prompt.body.get("tools")) == (workload == "tool")


def test_edits_carry_their_file():
    for prompt in load("edit", count("edit")):
        text = prompt.body["messages"][-1]["content"]
        assert any(file.read_text() in text for file in (PROMPTS / "files").iterdir())


def test_the_seed_draws():
    assert load("chat", 4, seed=1) == load("chat", 4, seed=1)
    assert load("chat", 4, seed=1) != load("chat", 4, seed=2)


def test_asking_for_what_is_not_there(tmp_path):
    with pytest.raises(BenchError, match="8 prompts"):
        load("chat", 9)
    with pytest.raises(BenchError, match="no workload 'poetry'"):
        load("poetry", 1)
    (tmp_path / "poetry.jsonl").write_text('{"id": "a", "messages": []}\n')
    assert load("poetry", 1, tmp_path)[0].body == {"messages": []}


def test_the_answer_of_an_edit_is_its_file_with_the_change():
    prompts = {p.id: p for p in load(REPLAY, count("edit"))}
    assert all(p.answer for p in prompts.values())
    answer = prompts["edit-2"].answer or ""
    assert answer.startswith("```toml\n[server]") and answer.endswith('rotate = "daily"\n```')
    assert "port = 9090" in answer and "8080" not in answer and 'level = "debug"' in answer
    assert "wait *= 3" in (prompts["edit-7"].answer or "")
    assert all(prompt.answer is None for prompt in load("edit", count("edit")))


def history(*edits: str) -> list[dict]:
    rows: list[dict] = [{"role": "system", "content": "You are an agent."}]
    for edit in edits:
        rows.append({"role": "user", "content": "What now?"})
        rows.append({"role": "assistant", "content": f"So.\n\n```\n{edit}\n```", "action": edit})
    return rows


def test_recorded_runs_are_edits_too(tmp_path):
    first = history("ls -F", "edit 3:4\nx = 1\nend_of_edit")
    second = history("open a.py", "edit 'a' 'b'")
    second[-1]["content"] = "The call stands apart."
    second[-2] = {"role": "tool", "content": [{"type": "text", "text": "opened"}]}
    (tmp_path / "a.traj").write_text(json.dumps({"history": first}))
    with gzip.open(tmp_path / "b.traj.gz", "wt") as file:
        json.dump({"history": second}, file)
    one, two = sorted(load(REPLAY, 2, tmp_path), key=lambda p: p.id)
    assert one.answer == "So.\n\n```\nedit 3:4\nx = 1\nend_of_edit\n```"
    assert [m["role"] for m in one.body["messages"]] == ["system", "user", "assistant", "user"]
    assert two.answer == "The call stands apart.\n\n```\nedit 'a' 'b'\n```"
    assert two.body["messages"][-1] == {"role": "user", "content": "opened"}
    assert load("chat", 8, tmp_path) == load("chat", 8), "what is not there is the package's"
