"""The whole set of one side, by workload."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentspec.bench import bfcl

from . import agents, chatting, sources
from .sides import Side, side_of

WORKLOADS = ("tool", "edit", "code", "chat")
_PLENTY = 10**6
_SHORT_TASK = 2400


def build(
    side: Side, counts: Mapping[str, int], tasks: Path | None, seed: int
) -> dict[str, list[Any]]:
    """workload -> prompts ``{id, messages, tools?, tool_choice?}``, ``counts`` of each.

    tasks: a file of function-calling tasks (``bench/bfcl.py``); half of the tool prompts come from
    it. Fewer where a source has fewer. The same arguments give the same prompts on the same Python.
    """
    draw = random.Random(f"{seed} {side}")
    known = sources.functions(side)
    draw.shuffle(known)
    made = {
        "tool": _tools(side, counts["tool"], tasks, known, draw),
        "edit": _some((sources.edit(f, draw) for f in known), counts["edit"]),
        "code": _some((sources.code(f, draw) for f in reversed(known)), counts["code"]),
        "chat": _some(iter(chatting.prompts(side, draw)), counts["chat"]),
    }
    return {
        workload: [{"id": f"{workload}-{i}", **body} for i, body in enumerate(bodies)]
        for workload, bodies in made.items()
    }


def _some(bodies: Iterator[dict[str, Any] | None], count: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        if len(found) == count:
            break
        if body is not None:
            found.setdefault(json.dumps(body), body)
    return list(found.values())


def _tools(
    side: Side,
    count: int,
    tasks: Path | None,
    known: list[sources.Function],
    draw: random.Random,
) -> list[dict[str, Any]]:
    given = [] if tasks is None else _tasks(side, tasks, count // 2, draw)
    own = _some((agents.call(f, draw) for f in known), count - len(given))
    both = given + own
    draw.shuffle(both)
    return both


def _tasks(side: Side, path: Path, count: int, draw: random.Random) -> list[dict[str, Any]]:
    """Tasks of this side whose tools aren't long. A task's functions decide its side: what is asked
    of one function stands in several tasks."""
    found = [
        {"messages": task["messages"], "tools": task["tools"], "tool_choice": "required"}
        for task in bfcl.load(path, _PLENTY, seed=0)
        if side_of(*sorted(call["name"] for call in task["expected_calls"])) == side
        and len(json.dumps(task["tools"])) < _SHORT_TASK
    ]
    draw.shuffle(found)
    return found[:count]


def write(prompts: dict[str, list[Any]], to: Path) -> int:
    """A file of all (JSON lines), as training reads it; or a folder, a file a workload, as benches
    do. Returns how many."""
    if to.suffix == ".jsonl":
        lines = [json.dumps(prompt) for bodies in prompts.values() for prompt in bodies]
        to.write_text("".join(line + "\n" for line in lines))
        return len(lines)
    to.mkdir(parents=True, exist_ok=True)
    for workload, bodies in prompts.items():
        (to / f"{workload}.jsonl").write_text("".join(json.dumps(b) + "\n" for b in bodies))
    return sum(map(len, prompts.values()))
