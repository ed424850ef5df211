"""The Markdown of a comparison, out of its document."""

from __future__ import annotations

import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Any

from agentspec.bench.report import cell as _number

from .plots import named

Row = dict[str, Any]
_HEAD = ("method", "accepted length", "speed-up", "tok/s", "drafts accepted", "forced", "draft ms")
_HEAD_LAST = ("verify ms", "n", "5 %")


def page(document: dict[str, Any]) -> str:
    """Tables by temperature, schedule and workload; then what drafting by position showed, the
    quotients of methods, and what went wrong."""
    results = document["results"]
    lines = ["# Comparison of drafts", "", *_origin(document), *_warnings(document)]
    for place in _places(results):
        rows = [r for r in results if _of(r, place)]
        pairs = [p for p in document["pairs"] if _of_pair(p, place)]
        lines += ["", f"## {place[0]}, T = {place[1]:g}, {place[2]}", "", *_table(rows)]
        lines += ["", *_position_table(rows)]
        lines += ["", *_pair_table(pairs, rows)]
    lines += _peer_table(document)
    return "\n".join(lines) + "\n"


def _places(results: Seq[Row]) -> list[tuple[str, float, str]]:
    found = [(r["workload"], r["temperature"], r["schedule"]) for r in results]
    return list(dict.fromkeys(place for place in found if place[2] != "off"))


def _of(row: Row, place: tuple[str, float, str]) -> bool:
    """Plain decoding belongs to every schedule."""
    return (row["workload"], row["temperature"]) == place[:2] and row["schedule"] in (
        "off",
        place[2],
    )


def _of_pair(pair: Row, place: tuple[str, float, str]) -> bool:
    """All but those over plain decoding, which are the table's speed-ups."""
    own = (pair["workload"], pair["temperature"]) == place[:2] and pair["schedule"] in (
        "off",
        place[2],
    )
    return own and pair["b"] != "none"


def _origin(document: dict[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    day = time.strftime("%Y-%m-%d", time.gmtime(document["finished_unix_s"]))
    versions = ", ".join(f"{name} {v}" for name, v in document["versions"].items())
    yield f"`{document['command']}`"
    yield ""
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, load "
        f"{machine['load_1m']} at the end; commit {document['commit'] or 'unknown'}; {versions}; "
        f"target {document['target']}; {day}."
    )
    yield ""
    yield (
        "Accepted length counts the bonus token, forced tokens apart. Speed-up is over plain "
        "decoding of the same prompts in the same run. Brackets: 95 % intervals, resampled by "
        "prompt. 5 %: whether half of each interval is within it, else about how many prompts "
        "it takes. Columns: docs/compare.md."
    )


def _warnings(document: dict[str, Any]) -> Iterator[str]:
    wrong = document["other_text"]
    if wrong:
        yield ""
        yield f"**{len(wrong)} answers differ from plain decoding's where they must not.**"
    else:
        yield ""
        yield f"Texts equal to plain decoding's: {document['checked']} of {document['checked']}."


def _table(rows: Seq[Row]) -> Iterator[str]:
    yield _line((*_HEAD, *_HEAD_LAST))
    yield _line(["---"] * (len(_HEAD) + len(_HEAD_LAST)))
    for row in rows:
        yield _line(
            [
                named(row, rows),
                _with_interval(row["accepted_length"], row["ci95"]),
                _with_interval(row["speedup"], row["speedup_ci95"]),
                *(_number(row[name]) for name in ("tok_s", "acceptance", "forced_share")),
                *(_number(row[name]) for name in ("draft_ms", "verify_ms", "n")),
                "yes" if row["resolves_5_percent"] else f"n = {row['n_for_5_percent'] or '?'}",
            ]
        )


def _position_table(rows: Seq[Row]) -> Iterator[str]:
    rows = [row for row in rows if row["by_position"]]
    if not rows:
        return
    last = min(max(len(row["by_position"]) for row in rows), 16)
    yield "Acceptance by position, given that all before stand:"
    yield ""
    yield _line(["method", *map(str, range(1, last + 1))])
    yield _line(["---"] * (last + 1))
    for row in rows:
        rates = [p["given_before"] for p in row["by_position"][:last]]
        rates += [None] * (last - len(rates))
        yield _line([named(row, rows), *("" if r is None else f"{r:.2f}" for r in rates)])


def _pair_table(pairs: Seq[Row], rows: Seq[Row]) -> Iterator[str]:
    if not pairs:
        return
    names = {(row["method"], row["masked"]): named(row, rows) for row in rows}
    yield "One over the other, in pairs by prompt:"
    yield ""
    yield _line(["of", "over", "accepted length", "speed"])
    yield _line(["---"] * 4)
    for pair in pairs:
        yield _line(
            [
                names[pair["a"], pair["a_masked"]],
                names[pair["b"], pair["b_masked"]],
                _with_interval(pair["accepted_length_ratio"], pair["accepted_length_ci95"]),
                _with_interval(pair["speed_ratio"], pair["speed_ci95"]),
            ]
        )


def _peer_table(document: dict[str, Any]) -> Iterator[str]:
    rows, refused = document.get("peers") or [], document.get("not_exported") or {}
    if not rows and not refused:
        return
    columns = ("method", "workload", "accepted_length", "tok_s", "plain_tok_s", "speedup", "n")
    yield from ("", "## The same drafts in llama.cpp", "")
    yield "T = 0, without a grammar; medians over prompts."
    yield ""
    yield _line(columns)
    yield _line(["---"] * len(columns))
    for row in rows:
        yield _line([_number(row[name]) for name in columns])
    for name, why in refused.items():
        yield ""
        yield f"`{name}` is not there: {why}."


def _with_interval(value: float | None, interval: Seq[float | None] | None) -> str:
    if value is None:
        return ""
    low, high = interval or (None, None)
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _line(cells: Seq[str]) -> str:
    return "| " + " | ".join(cells) + " |"
