"""Prompts by the thousand: two sides that don't meet, and that are the same each time."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from agentspec import cli
from agentspec.bench.compare.overlap import overlapping, trained_runs
from agentspec.bench.prompt_sets.build import WORKLOADS, build
from agentspec.bench.prompt_sets.sides import side_of
from agentspec.bench.prompt_sets.sources import edit, functions
from agentspec.bench.workloads import PROMPTS, everything
from agentspec.wire.chat import decode_request, encode

COUNTS = dict.fromkeys(WORKLOADS, 40)


def task(number: int) -> dict:
    name = f"math.op_{number}"
    tool = {
        "type": "function",
        "function": {
            "name": name,
            "description": "An operation.",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    }
    asked = {"role": "user", "content": f"Apply operation number {number} to the value 7."}
    call = {"name": name, "accepted_args": {"x": [7]}}
    return {"id": f"t{number}", "messages": [asked], "tools": [tool], "expected_calls": [call]}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task(n)) + "\n" for n in range(60)))
    return path


def test_the_sides_are_of_different_things(tasks: Path):
    training, evaluation = (build(side, COUNTS, tasks, 0) for side in ("training", "evaluation"))
    for prompts in (training, evaluation):
        assert {w: len(p) for w, p in prompts.items()} == COUNTS
    asked = [
        {body["messages"][-1]["content"] for bodies in side.values() for body in bodies}
        for side in (training, evaluation)
    ]
    assert asked[0].isdisjoint(asked[1])
    given = {
        body["tools"][0]["function"]["name"]
        for body in training["tool"]
        if "operation number" in body["messages"][-1]["content"]
    }
    assert given and all(side_of(name) == "training" for name in given)


def test_every_prompt_is_a_chat_request(tasks: Path):
    for bodies in build("training", COUNTS, tasks, 3).values():
        for body in bodies:
            whole = {k: v for k, v in body.items() if k != "id"} | {"model": "m"}
            assert decode_request(encode(whole)).messages


def test_the_same_seed_gives_the_same_prompts(tasks: Path):
    assert build("training", COUNTS, tasks, 5) == build("training", COUNTS, tasks, 5)
    assert build("training", COUNTS, tasks, 5) != build("training", COUNTS, tasks, 6)


def test_an_edit_names_what_stands_in_its_file():
    draw = random.Random(2)
    for found in functions("evaluation")[:60]:
        body = edit(found, draw)
        wish, _, rest = body["messages"][-1]["content"].partition("\n\n")
        text = rest.removeprefix("```python\n").removesuffix("```")
        assert text == found.text
        if wish.startswith("Rename"):
            assert wish.split()[3] in text


def test_by_the_command_line_without_what_was_trained_on(tasks: Path, tmp_path: Path):
    """And the bench's own prompts are on neither side's ground."""
    trained, judged = tmp_path / "training.jsonl", tmp_path / "evaluation"
    common = ["--tasks", str(tasks), "--n", "40,40,40,40"]
    kept = tmp_path / "training.runs"
    first = ["--side", "training", "--to", str(trained), "--runs", str(kept)]
    assert cli.main(["bench", "prompts", *first, *common]) == 0
    assert trained_runs([kept]) == trained_runs([trained])
    more = ["--to", str(judged), "--without", str(kept)]
    assert cli.main(["bench", "prompts", "--side", "evaluation", *more, *common]) == 0
    runs = trained_runs([trained])
    for workload in WORKLOADS:
        prompts = everything(workload, judged)
        assert len(prompts) > 30
        assert overlapping(((p.id, p.body) for p in prompts), runs) == []
        own = everything(workload, PROMPTS)
        assert overlapping(((p.id, p.body) for p in own), runs) == []


def test_wrong_counts_are_named(tmp_path: Path):
    wrong = ["bench", "prompts", "--side", "training", "--to", str(tmp_path / "x.jsonl")]
    with pytest.raises(SystemExit, match="4"):
        cli.main([*wrong, "--n", "1,2"])
