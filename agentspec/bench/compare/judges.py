"""How a published figure is judged by a comparison's document.

A judge returns None where the document holds nothing to judge by; else what was found, in words,
and whether that reproduces the figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .published import means

Document = dict[str, Any]
Row = dict[str, Any]
_GPUS, _GPU_USD_H = 8, 2.50
LEAST_PROMPTS = 8
"""Rows of fewer prompts judge nothing."""


class Found(NamedTuple):
    """text: our figure. holds: whether it reproduces the published one."""

    text: str
    holds: bool


Judge = Callable[[Document], Found | None]


def published_means() -> str:
    """DSpark over its rivals by the paper's own table, a model each."""
    told = [
        f"{model} +{100 * (dspark / eagle3 - 1):.1f} % and +{100 * (dspark / dflash - 1):.1f} %"
        for model, (eagle3, dflash, dspark) in means().items()
    ]
    return (
        "over EAGLE-3 and DFlash: " + "; ".join(told) + ". The range over EAGLE-3 is Qwen3's alone"
    )


def dollars(tok_s: float, claimed: float) -> str:
    """What a million tokens cost at that pace of all streams together."""
    cost = _GPUS * _GPU_USD_H * 1e6 / tok_s / 3600
    needed = _GPUS * _GPU_USD_H * 1e6 / claimed / 3600
    return (
        f"{_GPUS} GPUs at ${_GPU_USD_H:.2f} are ${_GPUS * _GPU_USD_H:.0f} an hour, so a million "
        f"tokens at {tok_s:g} a second cost ${cost:.2f}; ${claimed} takes {needed:,.0f} a second"
    )


def rows_of(document: Document, method: str, workload: str | None = None) -> Iterator[Row]:
    """Rows of a method that knew the grammar where there is one."""
    grammar = {r["workload"] for r in document["results"] if r["masked"]}
    for row in document["results"]:
        right = row["method"] == method and workload in (None, row["workload"])
        known = right and row["n"] >= LEAST_PROMPTS
        if known and (row["masked"] or row["workload"] not in grammar):
            yield row


def fixed(document: Document, method: str, workload: str | None = None) -> list[Row]:
    """Those of a schedule that always verifies as much: confidences decide nothing."""
    return [
        row
        for row in rows_of(document, method, workload)
        if row["schedule"].startswith("k") and row["by_position"]
    ]


def _at(row: Row) -> str:
    return f"{row['workload']} at T = {row['temperature']:g}"


def over(one: str, other: str, low: float, high: float | None) -> Judge:
    """Accepted length of one over the other, each workload of a fixed schedule."""

    def judge(document: Document) -> Found | None:
        told, holds = [], []
        for pair in document["pairs"]:
            names = (pair["a"], pair["b"])
            fits = pair["schedule"].startswith("k") and pair["n"] >= LEAST_PROMPTS
            if set(names) != {one, other} or not fits:
                continue
            value, interval = pair["accepted_length_ratio"], pair["accepted_length_ci95"]
            if value is None or not interval or None in interval:
                continue
            ends = [value, *interval]
            if names != (one, other):
                ends = [1 / end for end in ends]
            told.append(f"{_at(pair)} {ends[0]:.3f} [{min(ends):.3f}, {max(ends):.3f}]")
            holds.append(max(ends) >= low and (high is None or min(ends) <= high))
        return Found("; ".join(told), all(holds)) if told else None

    return judge


def _places(rows: list[Row]) -> list[tuple[Row, float, float]]:
    """First and last place's conditional acceptance, of those that 30 rounds or more reached."""
    found = []
    for row in rows:
        rates = [
            p["given_before"]
            for p in row["by_position"]
            if p["given_before"] is not None and p["rounds"] >= 30
        ]
        if len(rates) > 1:
            found.append((row, rates[0], rates[-1]))
    return found


def falls(method: str) -> Judge:
    def judge(document: Document) -> Found | None:
        rows = [*fixed(document, method, "code"), *fixed(document, method, "chat")]
        places = _places(rows)
        told = "; ".join(f"{_at(row)} {a:.2f} to {b:.2f}" for row, a, b in places)
        return Found(told, all(b < a for _, a, b in places)) if places else None

    return judge


def rises(method: str, workload: str) -> Judge:
    def judge(document: Document) -> Found | None:
        places = _places(fixed(document, method, workload))
        told = "; ".join(f"{_at(row)} {a:.2f} to {b:.2f}" for row, a, b in places)
        return Found(told, all(b > a for _, a, b in places)) if places else None

    return judge


def sweeps(method: str) -> Judge:
    def judge(document: Document) -> Found | None:
        told, holds = [], []
        for row in fixed(document, method):
            shares = {s["threshold"]: s["share"] for s in row["threshold_sweep"]}
            if shares.get(0.0) is None or shares.get(0.8) is None:
                continue
            told.append(f"{_at(row)} {shares[0.0]:.1%} to {shares[0.8]:.1%}")
            holds.append(shares[0.8] > 0.9)
        return Found("; ".join(told), all(holds)) if told else None

    return judge


def calibrated(method: str) -> Judge:
    def judge(document: Document) -> Found | None:
        told, holds = [], []
        for row in fixed(document, method):
            errors = row["calibration_error"]
            if errors:
                told.append(f"{_at(row)} " + ", ".join(f"{k}: {e:.1%}" for k, e in errors.items()))
                holds.append(all(e < 0.02 for e in errors.values()))
        return Found("; ".join(told), all(holds)) if told else None

    return judge


def _best(rows: list[Row], value: str) -> Row | None:
    known = [row for row in rows if row[value] is not None]
    return max(known, key=lambda row: row[value]) if known else None


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _one(value: str, interval: str, low: float | None, high: float | None) -> Callable:
    """Of a method and workload: its best row's value within the bounds."""

    def made(document: Document, method: str, workload: str | None) -> Found | None:
        row = _best(list(rows_of(document, method, workload)), value)
        if row is None:
            return None
        text = f"{_at(row)}, {row['schedule']}: {row[value]:.2f} {row[interval]}, n = {row['n']}"
        return Found(text, _within(row[value], low, high))

    return made


def speeds(method: str, workload: str, low: float | None, high: float | None) -> Judge:
    found = _one("speedup", "speedup_ci95", low, high)
    return lambda document: found(document, method, workload)


def accepts(method: str, workload: str, low: float | None, high: float | None) -> Judge:
    found = _one("accepted_length", "ci95", low, high)
    return lambda document: found(document, method, workload)


def capped(method: str, least: float, most: float) -> Judge:
    """Best speed-up near a cap: far below it is no cap, above it neither."""
    found = _one("speedup", "speedup_ci95", least, most)
    return lambda document: found(document, method, None)


def reaches(method: str, least: float) -> Judge:
    found = _one("speedup", "speedup_ci95", least, None)
    return lambda document: found(document, method, None)


def share(method: str, workload: str, low: float, high: float) -> Judge:
    """Above the range is not the figure either."""

    def judge(document: Document) -> Found | None:
        rows = [row for row in fixed(document, method, workload) if row["acceptance"] is not None]
        told = "; ".join(f"{_at(row)} {row['acceptance']:.1%} (n = {row['n']})" for row in rows)
        return Found(told, all(low <= r["acceptance"] <= high for r in rows)) if rows else None

    return judge


def windows(method: str) -> Judge:
    def median(row: Row) -> float | None:
        widths = [int(w) for w, count in row["widths"].items() if int(w) for _ in range(count)]
        return statistics.median(widths) if widths else None

    def judge(document: Document) -> Found | None:
        rows = [r for r in rows_of(document, method) if r["schedule"] == "adaptive"]
        edits = [r for r in rows if r["workload"].startswith("edit")]
        chats = {_at(r): median(r) for r in rows if r["workload"] == "chat"}
        chats = {name: m for name, m in chats.items() if m is not None}
        wide = [sum(c for w, c in r["widths"].items() if 10 <= int(w) <= 12) for r in edits]
        if not chats or not wide:
            return None
        text = f"rounds of 10 to 12 on edits: {sum(wide)}; median of chat: {chats}"
        return Found(text, all(wide) and all(3 <= m <= 5 for m in chats.values()))

    return judge


def costs_below_half() -> Judge:
    def judge(document: Document) -> Found | None:
        rows = [
            row
            for row in document["results"]
            if row["schedule"].startswith("k")
            and row["n"] >= LEAST_PROMPTS
            and row["acceptance"] is not None
            and row["acceptance"] < 0.5
            and row["speedup"] is not None
        ]
        if not rows:
            return None
        slower = sum(row["speedup"] < 1.0 for row in rows)
        text = f"{slower} of {len(rows)} rows with less than half accepted are slower than plain"
        return Found(text, slower == len(rows))

    return judge
