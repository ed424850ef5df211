"""Function-calling tasks in BFCL's form: sampling them, and judging calls against their answers.

A task is ``{id, category, messages, tools, expected_calls: [{name, accepted_args}]}``; an
argument's accepted values are a list, in which ``""`` means that it may be left out (Berkeley
Function Calling Leaderboard, possible_answer files). Judged by exact match, without BFCL's string
normalisation.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]


def load(path: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` tasks that expect a call, drawn with ``seed``; names made OpenAI-legal."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        tasks = [json.loads(line) for line in lines]
    tasks = [task for task in tasks if task["expected_calls"]]
    random.Random(seed).shuffle(tasks)
    return [_legal(task) for task in tasks[:count]]


def _legal(task: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's names are [A-Za-z0-9_-]; BFCL's hold dots. Mapped in tools and answers alike."""
    for tool in task["tools"]:
        tool["function"]["name"] = tool["function"]["name"].replace(".", "_")
    for call in task["expected_calls"]:
        call["name"] = call["name"].replace(".", "_")
    return task


def _accepted(value: Any, accepted: Any) -> bool:
    if isinstance(accepted, dict) and isinstance(value, dict):
        return set(value) <= set(accepted) and all(
            any(_accepted(value[key], one) for one in options) if key in value else "" in options
            for key, options in accepted.items()
            if isinstance(options, list)
        )
    if isinstance(accepted, list) and isinstance(value, list):
        return len(accepted) == len(value) and all(map(_accepted, value, accepted))
    return (
        type(value) is not bool and value == accepted
        if type(accepted) is not bool
        else (value is accepted)
    )


def arguments_right(given: dict[str, Any], accepted: dict[str, list[Any]]) -> bool:
    """Whether every given argument has an accepted value and every needed one is given."""
    if not set(given) <= set(accepted):
        return False
    return all(
        any(_accepted(given[name], one) for one in options) if name in given else "" in options
        for name, options in accepted.items()
    )


def judge(calls: list[Call], expected: list[dict[str, Any]]) -> tuple[bool, bool]:
    """(names right, names and arguments right); the order of parallel calls is free."""
    names = sorted(name for name, _ in calls) == sorted(call["name"] for call in expected)
    if not names:
        return False, False
    open_calls = list(expected)
    for name, given in calls:
        match = next(
            (
                c
                for c in open_calls
                if c["name"] == name and arguments_right(given, c["accepted_args"])
            ),
            None,
        )
        if match is None:
            return True, False
        open_calls.remove(match)
    return True, True
