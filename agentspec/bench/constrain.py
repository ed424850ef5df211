"""What a tools' grammar costs before the first token, and what it saves behind it.

first-token: one conversation with twelve tools, from the decoded request to its first token,
beside a request whose messages are the same prompt, token by token, and which asks for no grammar.
"cold" compiles the grammar anew, "warm" finds it. All of a round run one after the other.

call: tool calls under their grammar (masks, forced spans) beside the same text without one, which
a ``Teacher`` makes the engine write.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agentspec.settings import load as load_settings
from agentspec.wire.chat import ChatRequest, decode_request, encode

from . import report
from .ours import Ours
from .stats import percentile
from .workloads import BenchError, Case, Prompt, Run, load

if TYPE_CHECKING:
    from agentspec.engine.turn import Planner

COLUMNS = [
    *("what", "asked", "grammar", "p50_ms", "p99_ms", "added_p50_ms", "added_p99_ms"),
    *("tok_s", "over_free", "same_text", "n"),
]
TOOLS = 12
NONE, WARM, COLD = "none", "warm", "cold"
_FIRST_TOKENS = 64
"""Output limit of a request that is ended at its first token: far enough for a call to fit."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask for the same prompt. kept: all share a prefix that is in the cache."""

    grammar: str
    planner: Planner
    request: ChatRequest
    kept: bool


@dataclass(slots=True)
class Pairs:
    """Runs of the same calls under a grammar and without; index by index."""

    held: list[Run] = field(default_factory=list)
    free: list[Run] = field(default_factory=list)


def prompts(count: int) -> tuple[list[Prompt], list[dict[str, Any]]]:
    """(``count`` tool prompts, the twelve different tools of all)."""
    every = load("tool", 10)
    tools = {tool["function"]["name"]: tool for p in every for tool in p.body["tools"]}
    if len(tools) < TOOLS or count > len(every):
        raise BenchError(f"there are {len(every)} prompts with {len(tools)} tools")
    return every[:count], list(tools.values())[:TOOLS]


def _request(planner: Planner, **body: Any) -> ChatRequest:
    common = {
        "model": planner.model,
        "temperature": 0,
        "max_tokens": _FIRST_TOKENS,
        "agentspec": {"speculation": "off"},
    }
    return decode_request(encode({**common, **body}))


def _ways(
    planners: dict[str, Planner], choice: str, tools: list[dict[str, Any]], kept: bool
) -> list[Way]:
    """Without a grammar, warm and cold; their prompts are equal. Fails where they are not."""
    warm = planners[WARM]
    user = {"role": "user", "content": "Read lines 10 to 60 of src/server/router.py."}
    asked = _request(warm, messages=[user], tools=tools, tool_choice=choice)
    plain = _request(warm, messages=warm.turns(asked))
    requests = {NONE: plain, WARM: asked, COLD: asked}
    ways = [Way(name, planners[name], requests[name], kept) for name in (NONE, WARM, COLD)]
    texts = [way.planner.plan(way.request, 0.0).sequences[0].prompt for way in ways]
    assert texts[0] == texts[1] == texts[2]
    return ways


def _first_token_ms(ours: Ours, way: Way) -> float:
    """From the decoded request to the output that holds its first token."""
    scope = "constrain" if way.kept else f"constrain-{time.perf_counter_ns()}"
    started_s = time.perf_counter()
    turn = way.planner.plan(way.request, time.monotonic())
    sequence = replace(turn.sequences[0], cache_scope=scope, session=None)
    ours.engine.add(sequence)
    while not any(output.tokens for output in ours.engine.step()):
        pass
    elapsed_ms = (time.perf_counter() - started_s) * 1000
    ours.engine.abort(sequence.id)
    while ours.engine.has_work():
        ours.engine.step()
    return elapsed_ms


def _first_tokens(ours: Ours, ways: list[Way], rounds: int) -> dict[str, list[float]]:
    """Milliseconds by grammar; each round in another order, after one that is not counted."""
    times: dict[str, list[float]] = {way.grammar: [] for way in ways}
    for number in range(-1, rounds):
        turned = number % len(ways)
        for way in ways[turned:] + ways[:turned]:
            elapsed_ms = _first_token_ms(ours, way)
            if number >= 0:
                times[way.grammar].append(elapsed_ms)
    return times


def _row(what: str, asked: str, grammar: str, n: int, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "what": what, "asked": asked, "grammar": grammar} | {
        **more,
        "n": n,
    }


def first_token_rows(what: str, asked: str, times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """added_*: percentiles of each round's difference to its own request without a grammar."""
    rows = []
    for grammar, values in times.items():
        added = [ms - plain for ms, plain in zip(values, times[NONE], strict=True)]
        more = {"p50_ms": percentile(values, 50), "p99_ms": percentile(values, 99)}
        if grammar != NONE:
            more |= {"added_p50_ms": percentile(added, 50), "added_p99_ms": percentile(added, 99)}
        rows.append(_row(what, asked, grammar, len(values), **more))
    return rows


def _pairs(ours: Ours, cases: Seq[Case], variant: str) -> Pairs:
    """Every call twice, the order in turns. Its text is found by a run that is not counted."""
    pairs = Pairs()
    for number, case in enumerate(cases):
        (first,) = ours.runs([case], variant, 1)
        script = ours.script(first.text or "")[: case.max_tokens]
        free = replace(case, script=script, free=True)
        for one, runs in ((case, pairs.held), (free, pairs.free))[:: -1 if number % 2 else 1]:
            runs.extend(ours.runs([one], variant, 1))
    return pairs


def call_rows(mode: str, pairs: Pairs) -> list[dict[str, Any]]:
    """same_text: calls whose texts were equal; only these count, and none that loops."""
    both = [
        (held.tok_s, free.tok_s)
        for held, free in zip(pairs.held, pairs.free, strict=True)
        if held.text == free.text and not held.looped and held.tok_s and free.tok_s
    ]
    same = sum(h.text == f.text for h, f in zip(pairs.held, pairs.free, strict=True))

    def row(grammar: str, rates: list[float], ratios: list[float]) -> dict[str, Any]:
        return _row(
            "call",
            mode,
            grammar,
            len(rates),
            tok_s=statistics.median(rates) if rates else None,
            over_free=statistics.median(ratios) if ratios else None,
            same_text=same,
        )

    return [
        row(NONE, [free for _, free in both], []),
        row(WARM, [held for held, _ in both], [held / free for held, free in both]),
    ]


def run(
    rounds: int, calls: int, max_tokens: int, threads: int, config: str | None
) -> dict[str, Any]:
    """The whole document. Raises ``BenchError`` and what ``Ours.start`` raises."""
    from agentspec.engine.build import constraints

    chosen, tools = prompts(calls)
    ours = Ours.start(None, threads, config)
    settings = load_settings(config).engine
    cold = ours.planner.compiling(constraints(ours.tokenizer, settings, cache_size=0))
    planners = {NONE: ours.planner, WARM: ours.planner, COLD: cold}
    rows: list[dict[str, Any]] = []
    for what, kept in (("first-token", True), ("first-token, new prompt", False)):
        for choice in ("auto", "required"):
            ways = _ways(planners, choice, tools, kept)
            # A whole new prompt is milliseconds a hundred times over: fewer rounds tell as much.
            times = _first_tokens(ours, ways, rounds if kept else max(rounds // 10, 1))
            rows += first_token_rows(what, choice, times)
            report.progress(f"{what} {choice}: done")
    cases = [ours.case(prompt, max_tokens) for prompt in chosen]
    for mode in ("plain", "speculative"):
        (variant,) = ours.variants(mode)
        rows += call_rows(mode, _pairs(ours, cases, variant))
        report.progress(f"calls {mode}: done")
    return report.build(rows, threads=threads, tools=TOOLS)
