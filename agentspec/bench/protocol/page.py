"""The report as one self-contained HTML file: no script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from agentspec.bench.load_plot import cliff

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
th, td { overflow-wrap: normal; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #8886; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.verdict { padding: 1rem; border: 2px solid currentColor; font-size: 1.2rem; }
svg { max-width: 100%; height: auto; background: #fff; }
.scroll { overflow-x: auto; }
"""
_LOAD = ("concurrency", "arm", "tok_s", "over_plain", "low", "high", "answer", "n", "failed")
_LATENCY = (
    *("concurrency", "arm", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms"),
    *("e2e_p50_ms", "e2e_p99_ms", "n"),
)


def page(document: dict[str, Any]) -> str:
    where = document["endpoint"]
    title = f"Adoption check: {where['model']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(where['url'])} ({escape(where['kind'])}); {escape(document['baseline'])}.</p>",
        f'<p class="verdict"><strong>Verdict: {escape(document["verdict"])}</strong></p>',
        _list(document["reasons"]),
        *_baseline(document),
        *_draft(document),
        *_acceptance(document),
        *_latency(document),
        *_memory(document),
        *_origin(document),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _baseline(document: dict[str, Any]) -> list[str]:
    rows = [row for row in document["results"] if row["arm"] == "plain"]
    body = table(rows, ("concurrency", "tok_s", "tpot_p50_ms", "tpot_p99_ms", "n", "failed"))
    if not rows:
        body = "<p>Not measured.</p>"
    return ["<h2>1. Without speculation, over the concurrency range</h2>", body]


def _draft(document: dict[str, Any]) -> list[str]:
    text = (
        f"A draft was loaded for this check: {document['draft']}."
        if document["draft"]
        else "No draft was loaded for this check. One that is trained on your own traffic is made "
        "by `agentspec draft` (docs/train.md) and checked by `agentspec protocol --draft PATH`."
    )
    return ["<h2>2. A draft trained on your traffic</h2>", f"<p>{escape(text)}</p>"]


def _acceptance(document: dict[str, Any]) -> list[str]:
    rows: list[dict[str, Any]] = []
    for point in document["acceptance"]:
        base = {"concurrency": point["concurrency"]}
        for kind, share in point["shares"].items():
            low, high = share["interval"] or (None, None)
            rows.append(
                base
                | {"drafts": kind, "drafted": share["drafted"], "accepted": share["accepted"]}
                | {"rate": share["rate"], "low": low, "high": high}
                | {"accepted length": point["accepted_length"], "rule of one half": point["rule"]}
            )
        if not point["shares"]:
            told = "unknown: not told" if not point["told"] else "none"
            rows.append(base | {"drafts": told, "rule of one half": point["rule"]})
    columns = ("concurrency", "drafts", "drafted", "accepted", "rate", "low", "high")
    note = (
        "Rates by kind: of a model, copied (suffix, n-gram), forced by a grammar, or unknown where "
        "the endpoint doesn't tell. The rule of one half looks at a model's drafts alone; at those "
        "of unknown kind only where there are no others."
    )
    body = table(rows, (*columns, "accepted length", "rule of one half"))
    return ["<h2>3. Acceptance at these batch sizes</h2>", body, f"<p>{note}</p>"]


def _latency(document: dict[str, Any]) -> list[str]:
    rows = document["results"]
    drawn = [row | {"mode": row["arm"]} for row in rows if row["tok_s"] is not None]
    plot = cliff(drawn) if drawn else "<p>No plot: output tokens aren't counted.</p>"
    fewest = min((row["n"] for row in rows), default=0)
    note = (
        f"P99 of fewer than 100 requests is about the slowest one; the smallest row has {fewest}. "
        "TTFT and TPOT are of answers in text: tool calls come whole, only e2e holds them."
    )
    return [
        "<h2>4. Throughput and latency, with and without</h2>",
        table(rows, _LOAD),
        plot,
        table(rows, _LATENCY),
        f"<p>{note}</p>",
    ]


def _memory(document: dict[str, Any]) -> list[str]:
    return ["<h2>5. Memory headroom</h2>", _list(document["memory"]["said"])]


def _origin(document: dict[str, Any]) -> list[str]:
    machine = document["machine"]
    lines = [
        f"Command: {document['command']}",
        f"Client's machine: {machine['cpu']}, {machine['cores']} cores, load {machine['load_1m']}",
        f"Commit {document['commit']}, versions {document['versions']}",
        "Intervals are 95 %, by resampling: of rounds for throughput, of prompts for acceptance, "
        "of requests for P99.",
    ]
    return ["<h2>Where this comes from</h2>", _list(lines)]


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(row.get(name))}</td>' for name in columns)}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "–" if value is None else escape(str(value))
