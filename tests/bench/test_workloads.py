"""The shipped prompts are requests that the wire accepts, and no placeholder is left in them."""

from __future__ import annotations

import json

import pytest

from agentspec.bench.workloads import PROMPTS, WORKLOADS, BenchError, load
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
