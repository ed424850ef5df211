"""What is judged on was not trained on; and a prompt that was is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentspec.bench.compare.overlap import overlapping, runs, trained_runs
from agentspec.bench.workloads import PROMPTS, WORKLOADS, everything
from agentspec.engine import train
from agentspec.engine.shipped import trained_on

TRAINING = [*sorted(Path(train.__file__).parent.rglob("*prompts*.jsonl")), *trained_on()]


@pytest.fixture(scope="module")
def trained() -> set[bytes]:
    assert TRAINING
    return trained_runs(TRAINING)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_prompt_of_the_bench_was_trained_on(workload: str, trained: set[bytes]):
    prompts = everything(workload, PROMPTS)
    assert prompts and len(trained) > 40
    assert overlapping(((p.id, p.body) for p in prompts), trained) == []


def body(text: str) -> dict:
    return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": text}]}


def test_a_shared_run_is_found_within_other_text(tmp_path: Path):
    shared = "please read the file called config and tell me what port it sets"
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps(body(f"Now, {shared}.")) + "\n")
    trained = trained_runs([path])
    same = body(f"One more: {shared.upper()}!")
    other = body(shared.replace("config", "settings"))
    assert overlapping([("same", same), ("other", other)], trained) == ["same"]


def test_a_short_text_is_one_run():
    assert runs("Hello, World") == runs("hello world") != runs("hello worlds")
    assert len(runs(" ".join(map(str, range(20))))) == 9
