"""Function calling with this engine's model: free, constrained, and with canonical forcing.

Every task is asked with ``tool_choice: required``, greedily, in this process, planned as the server
plans it. "free" takes the grammar away after planning: what the model would write by itself.
"constrained" masks tokens only, with free whitespace, as other engines do; "canonical" is what the
server does: fixed spacing, forced spans emitted without asking the model (law 2 of the engine).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.settings import load as load_settings
from agentspec.toolcall.check import ArgumentsChecker
from agentspec.toolcall.format import ToolFormat, load_format
from agentspec.toolcall.parser import CallDropped, CallEnd, Parser
from agentspec.wire.chat import ChatRequest, decode_request, encode

from . import bfcl, report

if TYPE_CHECKING:
    from agentspec.engine.build import Built
    from agentspec.engine.request import Output
    from agentspec.engine.turn import Planner

MODES = ("free", "constrained", "canonical")
COLUMNS = [
    *("mode", "n", "valid", "names_right", "arguments_right", "cut"),
    *("out_tokens", "forced_tokens", "steps", "seconds"),
]


@dataclass(slots=True)
class Answered:
    """One task's outcome. valid: at least one call, every call parses and satisfies its schema."""

    valid: bool
    names: bool
    arguments: bool
    cut: bool
    out_tokens: int
    forced: int
    steps: int


def _planners(built: Built, settings: Any) -> dict[str, Planner]:
    from agentspec.engine.build import constraints
    from agentspec.engine.turn import Planner

    def planner(canonical: bool) -> Planner:
        return Planner(
            model=settings.model,
            context_tokens=built.planner.context_tokens,
            tokenizer=built.tokenizer,
            tool_format=load_format("smollm2"),
            compiler=constraints(
                built.tokenizer, settings, canonical=canonical, flexible=not canonical
            ),
            sources=settings.draft_sources,
        )

    return {"free": planner(True), "constrained": planner(False), "canonical": planner(True)}


def _generate(built: Built, request: Any) -> tuple[str, Output]:
    """Text and last output of one sequence, stepped to its end."""
    built.engine.add(request)
    text: list[str] = []
    while True:
        for output in built.engine.step():
            text.append(output.text)
            if output.finish_reason is not None:
                return "".join(text), output


def _calls(fmt: ToolFormat, text: str) -> tuple[list[CallEnd], int]:
    parser = Parser(fmt)
    events = [*parser.feed(text), *parser.finish()]
    whole = [event for event in events if isinstance(event, CallEnd)]
    return whole, sum(isinstance(event, CallDropped) for event in events)


def judge_task(
    task: dict[str, Any], request: ChatRequest, calls: list[CallEnd], torn: int
) -> tuple[bool, bool, bool]:
    """(valid, names right, arguments right) of one answer."""
    checker = ArgumentsChecker(request.tools or [])
    valid = bool(calls) and not torn
    valid = valid and all(checker.check(c.name, c.arguments_text) is None for c in calls)
    pairs = [(c.name, json.loads(c.arguments_text)) for c in calls if _is_object(c.arguments_text)]
    names, arguments = bfcl.judge(pairs, task["expected_calls"])
    return valid, names and len(pairs) == len(calls), arguments and len(pairs) == len(calls)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _ask(
    built: Built, planner: Planner, task: dict[str, Any], mode: str, max_tokens: int
) -> Answered:
    body = {
        "model": planner.model,
        "messages": task["messages"],
        "tools": task["tools"],
        "tool_choice": "required",
        "temperature": 0,
        "max_tokens": max_tokens,
        "agentspec": {"cache_scope": mode},
    }
    request = decode_request(encode(body))
    sequence = planner.plan(request, time.monotonic()).sequences[0]
    if mode == "free":
        sequence = replace(sequence, constraint=None)
    text, last = _generate(built, sequence)
    assert last.report is not None
    fmt = load_format("smollm2")
    calls, torn = _calls(fmt, text)
    forced = last.report.sources.get("forced")
    return Answered(
        *judge_task(task, request, calls, torn),
        last.finish_reason == "length",
        last.output_tokens,
        forced.accepted if forced else 0,
        last.report.steps,
    )


def _row(mode: str, answers: list[Answered], seconds: float) -> dict[str, Any]:
    def count(read: Callable[[Answered], bool]) -> int:
        return sum(map(read, answers))

    return {
        "mode": mode,
        "n": len(answers),
        "valid": count(lambda a: a.valid),
        "names_right": count(lambda a: a.names),
        "arguments_right": count(lambda a: a.arguments),
        "cut": count(lambda a: a.cut),
        "out_tokens": sum(a.out_tokens for a in answers),
        "forced_tokens": sum(a.forced for a in answers),
        "steps": sum(a.steps for a in answers),
        "seconds": round(seconds, 2),
    }


def run(
    data: Path, count: int, seed: int, modes: list[str], max_tokens: int, config: str | None
) -> dict[str, Any]:
    """The whole document: one row a mode, the same tasks for each."""
    from agentspec.engine.build import build

    settings = load_settings(config).engine
    tasks = bfcl.load(data, count, seed)
    built = build(settings)
    planners = _planners(built, settings)
    rows = []
    for mode in modes:
        began, answers = time.perf_counter(), []
        for number, task in enumerate(tasks, 1):
            answers.append(_ask(built, planners[mode], task, mode, max_tokens))
            if number % 25 == 0:
                report.progress(f"{mode}: {number} of {len(tasks)}")
        rows.append(_row(mode, answers, time.perf_counter() - began))
    return report.build(rows, model=settings.model, tasks=len(tasks), seed=seed)
