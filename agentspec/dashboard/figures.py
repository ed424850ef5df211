"""The figures of the first page: each a drawing, its caption, and the table of the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from agentspec.store.acceptance import Acceptance
from agentspec.store.latency import EDGES_MS, Latency
from agentspec.store.reader import Overview
from agentspec.store.series import Bucket

from . import text
from .charts import Columns, Layer, curve, grouped, stacked
from .ranges import Range


@dataclass(frozen=True, slots=True)
class Figure:
    """``empty``: said instead of the drawing where there is nothing to draw."""

    title: str
    caption: str
    picture: Markup
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    legend: Sequence[Layer] = field(default_factory=list)
    empty: str = ""


def figures(overview: Overview, chosen: Range) -> list[Figure]:
    """All figures, in the order of the page."""
    series = overview.series
    return [
        requests_over_time(series, chosen),
        cost_over_time(series, chosen),
        input_over_time(series, chosen),
        output_over_time(series, chosen),
        by_position(overview.acceptance),
        accepted_lengths(overview.acceptance),
        length_over_time(series, chosen),
        latencies(overview.ttft, overview.e2e),
    ]


def requests_over_time(series: list[Bucket], chosen: Range) -> Figure:
    layers = [
        Layer("answered", "c-ok", [b.requests - b.failed for b in series]),
        Layer("failed or lost", "c-failed", [b.failed for b in series]),
    ]
    columns = _time_columns(series, chosen)
    label = f"Requests per {chosen.bucket_title}, {chosen.title}"
    return Figure(
        "Requests",
        f"Requests taken in per {chosen.bucket_title}, {chosen.title}.",
        stacked(label, columns, layers, text.count, whole=True),
        ["Start (UTC)", "Answered", "Failed or lost"],
        _rows(columns, layers, text.exact),
        layers,
    )


def input_over_time(series: list[Bucket], chosen: Range) -> Figure:
    layers = [
        Layer("from the cache", "c-cached", [b.cached_tok for b in series]),
        Layer("fresh", "c-fresh", [b.fresh_tok for b in series]),
    ]
    columns = _time_columns(series, chosen)
    label = f"Input tokens per {chosen.bucket_title}, {chosen.title}"
    return Figure(
        "Input tokens",
        f"Prompt tokens per {chosen.bucket_title}: found in a prefix cache, or computed afresh.",
        stacked(label, columns, layers, text.count, whole=True),
        ["Start (UTC)", "From the cache", "Fresh"],
        _rows(columns, layers, text.exact),
        layers,
    )


def output_over_time(series: list[Bucket], chosen: Range) -> Figure:
    layer = Layer("generated", "c-out", [b.out_tok for b in series])
    columns = _time_columns(series, chosen)
    label = f"Output tokens per {chosen.bucket_title}, {chosen.title}"
    return Figure(
        "Output tokens",
        f"Generated tokens per {chosen.bucket_title}.",
        stacked(label, columns, [layer], text.count, whole=True),
        ["Start (UTC)", "Generated"],
        _rows(columns, [layer], text.exact),
        [layer],
    )


def length_over_time(series: list[Bucket], chosen: Range) -> Figure:
    lengths = [b.accepted_length for b in series]
    layer = Layer("tokens a step", "c-accept", lengths)
    columns = _time_columns(series, chosen)
    return Figure(
        "Accepted length over time",
        f"Tokens a verification step yields on average, per {chosen.bucket_title}; 1 is no gain.",
        curve("Accepted length over time", columns, layer, _plain),
        ["Start (UTC)", "Tokens a step"],
        _rows(columns, [layer], text.decimal),
        empty="" if any(lengths) else "Nothing was drafted in this range.",
    )


def by_position(acceptance: Acceptance) -> Figure:
    shares = acceptance.by_position
    names = [str(i) for i in range(1, len(shares) + 1)]
    columns = Columns([f"position {name}" for name in names], _thin(names))
    layer = Layer("accepted", "c-accept", shares)
    return Figure(
        "Acceptance by draft position",
        "Share of verification steps in which the drafted token at that position was accepted.",
        curve("Acceptance by draft position", columns, layer, text.share, highest=1.0),
        ["Position", "Accepted"],
        [(name, text.share(value)) for name, value in zip(names, shares, strict=True)],
        empty="" if shares else "No drafted token was accepted in this range.",
    )


def accepted_lengths(acceptance: Acceptance) -> Figure:
    steps = acceptance.steps
    names = [str(j) for j in range(len(acceptance.hist))]
    columns = Columns([f"{name} drafted tokens accepted" for name in names], _thin(names))
    layer = Layer("steps", "c-accept", [count / (steps or 1) for count in acceptance.hist])
    mean = text.decimal(acceptance.mean_length)
    return Figure(
        "Accepted drafts per step",
        f"Share of {text.exact(steps)} verification steps. Each step adds one token of its own: "
        f"{mean} tokens a step on average.",
        stacked("Accepted drafts per step", columns, [layer], text.share),
        ["Accepted", "Steps", "Share"],
        [
            (name, text.exact(count), text.share(value))
            for name, count, value in zip(names, acceptance.hist, layer.values, strict=True)
        ],
        empty="" if steps else "No step verified a draft in this range.",
    )


def latencies(ttft: Latency, e2e: Latency) -> Figure:
    used = [i for i in range(len(ttft.bins)) if ttft.bins[i] or e2e.bins[i]]
    bins = range(used[0], used[-1] + 1) if used else range(0)
    edges = ["0", *map(_edge, EDGES_MS)]
    titles = [
        f"{edges[i]} to {edges[i + 1]}" if i < len(EDGES_MS) else f"over {edges[i]}" for i in bins
    ]
    columns = Columns(titles, _thin([edges[i] for i in bins]))
    layers = [
        Layer("first token", "c-ttft", [ttft.bins[i] for i in bins]),
        Layer("whole answer", "c-e2e", [e2e.bins[i] for i in bins]),
    ]
    return Figure(
        "Time to first token and to the end",
        "Finished requests by duration; a label is its column's lower limit.",
        grouped("Distribution of times", columns, layers, text.count, whole=True),
        ["Time", "First token", "Whole answer"],
        _rows(columns, layers, text.exact),
        layers,
        "" if used else "No request finished in this range.",
    )


def cost_over_time(series: list[Bucket], chosen: Range) -> Figure:
    layers = [
        Layer("cached input", "c-cached", [b.cost_cached_nusd for b in series]),
        Layer("fresh input", "c-fresh", [b.cost_fresh_nusd for b in series]),
        Layer("output", "c-out", [b.cost_out_nusd for b in series]),
    ]
    columns = _time_columns(series, chosen)
    label = f"Cost per {chosen.bucket_title}, {chosen.title}"
    free = not any(b.cost_nusd for b in series)
    return Figure(
        "Cost",
        f"US dollars per {chosen.bucket_title} at the configured prices.",
        stacked(label, columns, layers, lambda v: text.usd(round(v))),
        ["Start (UTC)", "Cached input", "Fresh input", "Output"],
        _rows(columns, layers, text.usd),
        layers,
        "Nothing was billed in this range. Prices stand under models.NAME.price in the settings."
        if free
        else "",
    )


def _rows(columns: Columns, layers: Sequence[Layer], form) -> list[tuple[str, ...]]:
    values = zip(*(layer.values for layer in layers), strict=True)
    return [(t, *map(form, row)) for t, row in zip(columns.titles, values, strict=True)]


def _time_columns(series: list[Bucket], chosen: Range) -> Columns:
    by_day = chosen.bucket_ms * chosen.buckets > 86_400_000
    titles, labels = [], []
    for bucket in series:
        at = text.moment(bucket.start_ms)
        day = f"{at.day} {at:%b}"
        titles.append(day if chosen.name == "30d" else f"{day} {at:%H:%M}")
        labelled = bucket.start_ms % (chosen.tick * chosen.bucket_ms) == 0
        labels.append((day if by_day else f"{at:%H:%M}") if labelled else "")
    return Columns(titles, labels)


def _thin(labels: list[str], most: int = 10) -> list[str]:
    """At most ``most`` of the labels, evenly spaced."""
    step = -(-len(labels) // most) or 1
    return [label if index % step == 0 else "" for index, label in enumerate(labels)]


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _edge(ms: int) -> str:
    return f"{ms}\u202fms" if ms < 1000 else f"{ms // 1000}\u202fs"
