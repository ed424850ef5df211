"""Structured output: tool calls and JSON answers, whether they are right and what that took."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from agentspec.store.board import Look
from agentspec.store.calls import tools
from agentspec.store.grouping import grouped
from agentspec.store.sample import Sample, sample

from . import text
from .blocks import asked, bars, label, number, ratio, share, time_ms, where_told
from .charts import Layer, stacked
from .context import Context
from .figures import START, rows_of, time_columns
from .sheet import Block, Sheet
from .tiles import Tile
from .view import View

_SUMS = ("requests", "tool_calls", "tool_calls_valid", "tool_calls_dropped", "redecoded_tok")
_SUMS += ("forced_tok", "out_tok")
REFUSED = ("invalid_json_schema", "constraint_not_met")
"""Error codes of requests whose constraint could not be held, or not be read."""
_COLUMNS = [
    "workload",
    "response_format",
    "tool_calls_repaired",
    "grammar_cold",
    "busy_grammar_us",
    "error_code",
    "n_tools",
]


def structured(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    slice = look.slice
    (whole,) = look.ask(grouped, slice, _SUMS).values()
    look.take_sql()
    found = look.ask(sample, slice, _COLUMNS)
    sample_sql = look.take_sql()
    blocks = [
        asked(look, _over_time(look, view), view.rows()),
        replace(grammars(found), sql=sample_sql, rows_url=view.rows()),
        where_told(look, "classes", "By class of work", lambda: _by_class(look, view)),
        replace(refused(found), sql=sample_sql, rows_url=view.rows(status="error")),
        asked(look, _by_tool(look)),
    ]
    repaired = sum(row[2] or 0 for row in found.rows)
    stopped = sum(row[5] in REFUSED for row in found.rows)
    calls, valid = whole["tool_calls"], whole["tool_calls_valid"]
    return Sheet(
        "Structured output",
        "A call is valid if it satisfies its tool's schema (or, where none is known, is JSON). "
        "What no mask can hold is checked and decoded again, or refused: never sent on wrong.",
        [
            Tile("Tool calls", text.count(calls), f"in {text.count(whole['requests'])} requests"),
            Tile(
                "Valid",
                text.share(ratio(valid, calls)),
                f"{text.exact(calls - valid)} were not",
                alarm=calls > valid,
            ),
            Tile("Mended", text.exact(repaired), f"calls, of {found.told}"),
            Tile("Dropped", text.exact(whole["tool_calls_dropped"]), "calls beyond mending"),
            Tile("Decoded again", text.count(whole["redecoded_tok"]), "tokens taken back unsent"),
            Tile("Refused", text.exact(stopped), f"requests, of {found.told}"),
            Tile(
                "Forced",
                text.share(ratio(whole["forced_tok"], whole["out_tok"])),
                "of output tokens set by a grammar",
            ),
        ],
        blocks=blocks,
    )


def _over_time(look: Look, view: View) -> Block:
    size_ms, window = view.chosen.bucket_ms, view.window
    found = look.ask(grouped, look.slice, _SUMS, bucket_ms=size_ms)
    starts = list(range(window.since_ms, window.until_ms, size_ms))
    empty = dict.fromkeys(_SUMS, 0)
    told = [found.get((at,), empty) for at in starts]
    layers = [
        Layer("valid", "c-ok", [one["tool_calls_valid"] for one in told]),
        Layer("invalid", "c-failed", [o["tool_calls"] - o["tool_calls_valid"] for o in told]),
        Layer("dropped", "c-ttft", [one["tool_calls_dropped"] for one in told]),
    ]
    columns = time_columns(starts, view.chosen)
    return Block(
        "calls",
        "Tool calls",
        f"Per {view.chosen.bucket_title}.",
        [START, number("Valid", "valid"), number("Invalid", "invalid")]
        + [number("Dropped", "dropped")],
        rows_of(columns, layers),
        stacked("Tool calls over time", columns, layers, text.count, whole=True),
        layers,
        "" if any(any(layer.values) for layer in layers) else "No tool was called in this range.",
    )


def grammars(found: Sample) -> Block:
    """Cold and warm grammars, and the time they took a request."""
    times: dict[str, list[int]] = {"compiled": [], "from the cache": []}
    for row in found.rows:
        if row[3] is not None:
            times["compiled" if row[3] else "from the cache"].append(row[4])
    rows = []
    for name, spent in times.items():
        mine = sorted(spent)
        middle = mine[(len(mine) - 1) // 2] / 1000 if mine else None
        most = mine[-1] / 1000 if mine else None
        rows.append((name, len(mine), middle, most))
    layers = [Layer("requests", "c-accept", [len(spent) for spent in times.values()])]
    block = bars(
        "grammars",
        "Grammars compiled, and found compiled",
        f"Requests under a grammar, over {found.told}; grammar time is the engine's, compiling and "
        "masking.",
        [label("Grammar", "grammar"), number("Requests", "requests")],
        list(times),
        layers,
        text.count,
        empty="" if any(times.values()) else "No request of this range ran under a grammar.",
    )
    columns = [label("Grammar", "grammar"), number("Requests", "requests")]
    columns += [time_ms("Median time", "median_ms"), time_ms("Longest", "longest_ms")]
    return replace(block, columns=columns, rows=rows)


def refused(found: Sample) -> Block:
    """Requests whose constraint could not be held."""
    counted = Counter((row[5], row[1] or "unset") for row in found.rows if row[5] in REFUSED)
    rows = [(code, form, count) for (code, form), count in sorted(counted.items())]
    return Block(
        "refused",
        "Refused",
        f"Over {found.told}. A constraint fails closed: an error, and no answer that breaks it.",
        [label("Error", "error_code"), label("Response format", "response_format")]
        + [number("Requests", "requests")],
        rows,
        empty="" if rows else "None was.",
    )


def _by_class(look: Look, view: View) -> Block:
    found = look.ask(grouped, look.slice, _SUMS, by=("workload", "backend"))
    rows, links = [], []
    for (workload, backend), one in sorted(found.items()):
        calls, valid = one["tool_calls"], one["tool_calls_valid"]
        if calls or one["tool_calls_dropped"] or one["redecoded_tok"] or one["forced_tok"]:
            rows.append(
                (
                    workload,
                    backend,
                    one["requests"],
                    calls,
                    ratio(valid, calls),
                    one["tool_calls_dropped"],
                    one["redecoded_tok"],
                    one["forced_tok"],
                )
            )
            links.append(view.rows(workload=workload, backend=backend))
    return Block(
        "classes",
        "By class of work and backend",
        "Classes with calls, or with tokens that a grammar set or took back.",
        [
            label("Class", "workload"),
            label("Backend", "backend"),
            number("Requests", "requests"),
            number("Calls", "tool_calls"),
            share("Valid", "valid_share"),
            number("Dropped", "tool_calls_dropped"),
            number("Decoded again", "redecoded_tok"),
            number("Forced", "forced_tok"),
        ],
        rows,
        links=links,
        empty="" if rows else "None in this range.",
    )


def _by_tool(look: Look) -> Block:
    found = look.ask(tools, look.window)
    rows = [
        (t.name, t.calls, ratio(t.valid, t.calls), t.calls - t.valid, t.repaired) for t in found
    ]
    return Block(
        "tools",
        "By tool",
        "The newest calls of the range, up to 10,000; of all models and backends, filters left "
        "aside.",
        [
            label("Tool", "name"),
            number("Calls", "calls"),
            share("Valid", "valid_share"),
            number("Invalid", "invalid"),
            number("Mended", "repaired"),
        ],
        rows,
        empty="" if rows else "No call was recorded in this range.",
    )
