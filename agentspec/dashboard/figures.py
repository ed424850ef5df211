"""The figures that several pages share: each a drawing and the table of the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentspec.store.acceptance import Acceptance
from agentspec.store.latency import EDGES_MS, Latency
from agentspec.store.reader import Overview
from agentspec.store.series import Bucket

from . import text
from .charts import Columns, Layer, curve, grouped, stacked
from .ranges import Range
from .sheet import Block, Column

START = Column("Start (UTC)", "start_utc")


def figures(overview: Overview, chosen: Range) -> list[Block]:
    """All figures of the first page, in its order."""
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


def requests_over_time(series: list[Bucket], chosen: Range) -> Block:
    layers = [
        Layer("answered", "c-ok", [b.requests - b.failed for b in series]),
        Layer("failed or lost", "c-failed", [b.failed for b in series]),
    ]
    columns = time_columns([b.start_ms for b in series], chosen)
    return Block(
        "requests",
        "Requests",
        f"Requests taken in per {chosen.bucket_title}, {chosen.title}.",
        [START, _count("Answered", "answered"), _count("Failed or lost", "failed")],
        rows_of(columns, layers),
        stacked(_over_time("Requests", chosen), columns, layers, text.count, whole=True),
        layers,
    )


def input_over_time(series: list[Bucket], chosen: Range) -> Block:
    layers = [
        Layer("from the cache", "c-cached", [b.cached_tok for b in series]),
        Layer("fresh", "c-fresh", [b.fresh_tok for b in series]),
    ]
    columns = time_columns([b.start_ms for b in series], chosen)
    return Block(
        "input",
        "Input tokens",
        f"Prompt tokens per {chosen.bucket_title}: found in a prefix cache, or computed afresh.",
        [START, _count("From the cache", "cached_tok"), _count("Fresh", "fresh_tok")],
        rows_of(columns, layers),
        stacked(_over_time("Input tokens", chosen), columns, layers, text.count, whole=True),
        layers,
    )


def output_over_time(series: list[Bucket], chosen: Range) -> Block:
    layer = Layer("generated", "c-out", [b.out_tok for b in series])
    columns = time_columns([b.start_ms for b in series], chosen)
    return Block(
        "output",
        "Output tokens",
        f"Generated tokens per {chosen.bucket_title}.",
        [START, _count("Generated", "out_tok")],
        rows_of(columns, [layer]),
        stacked(_over_time("Output tokens", chosen), columns, [layer], text.count, whole=True),
        [layer],
    )


def length_over_time(series: list[Bucket], chosen: Range) -> Block:
    lengths = [b.accepted_length for b in series]
    layer = Layer("tokens a step", "c-accept", lengths)
    columns = time_columns([b.start_ms for b in series], chosen)
    return Block(
        "length",
        "Accepted length over time",
        f"Tokens a verification step yields on average, per {chosen.bucket_title}; 1 is no gain.",
        [START, Column("Tokens a step", "accepted_length", text.decimal)],
        rows_of(columns, [layer]),
        curve(_over_time("Accepted length", chosen), columns, layer, plain),
        empty="" if any(lengths) else "Nothing was drafted in this range.",
    )


def by_position(acceptance: Acceptance) -> Block:
    shares = acceptance.by_position
    names = [str(i) for i in range(1, len(shares) + 1)]
    columns = Columns([f"position {name}" for name in names], thin(names))
    layer = Layer("accepted", "c-accept", shares)
    return Block(
        "positions",
        "Acceptance by draft position",
        "Share of all verification steps in which the drafted token at that position was accepted; "
        "a step that verified fewer drafts counts as one that accepted none there.",
        [Column("Position", "position"), Column("Accepted", "accepted_share", text.share)],
        list(zip(names, shares, strict=True)),
        curve("Acceptance by draft position", columns, layer, text.share, highest=1.0),
        empty="" if shares else "No drafted token was accepted in this range.",
    )


def accepted_lengths(acceptance: Acceptance) -> Block:
    steps = acceptance.steps
    names = [str(j) for j in range(len(acceptance.hist))]
    columns = Columns([f"{name} drafted tokens accepted" for name in names], thin(names))
    layer = Layer("steps", "c-accept", [count / (steps or 1) for count in acceptance.hist])
    mean = text.decimal(acceptance.mean_length)
    return Block(
        "lengths",
        "Accepted drafts per step",
        f"Share of {text.exact(steps)} verification steps. Each step adds one token of its own: "
        f"{mean} tokens a step on average.",
        [
            Column("Accepted", "accepted_tok"),
            _count("Steps", "steps"),
            Column("Share", "share", text.share),
        ],
        list(zip(names, acceptance.hist, layer.values, strict=True)),
        stacked("Accepted drafts per step", columns, [layer], text.share),
        empty="" if steps else "No step verified a draft in this range.",
    )


def latencies(ttft: Latency, e2e: Latency) -> Block:
    used = [i for i in range(len(ttft.bins)) if ttft.bins[i] or e2e.bins[i]]
    bins = range(used[0], used[-1] + 1) if used else range(0)
    edges = ["0", *map(_edge, EDGES_MS)]
    titles = [
        f"{edges[i]} to {edges[i + 1]}" if i < len(EDGES_MS) else f"over {edges[i]}" for i in bins
    ]
    columns = Columns(titles, thin([edges[i] for i in bins]))
    layers = [
        Layer("first token", "c-ttft", [ttft.bins[i] for i in bins]),
        Layer("whole answer", "c-e2e", [e2e.bins[i] for i in bins]),
    ]
    return Block(
        "times",
        "Time to first token and to the end",
        "Finished requests by duration; a label is its column's lower limit.",
        [
            Column("Time", "time"),
            _count("First token", "ttft_requests"),
            _count("Whole answer", "e2e_requests"),
        ],
        rows_of(columns, layers),
        grouped("Distribution of times", columns, layers, text.count, whole=True),
        layers,
        "" if used else "No request finished in this range.",
    )


def cost_over_time(series: list[Bucket], chosen: Range) -> Block:
    layers = [
        Layer("cached input", "c-cached", [b.cost_cached_nusd for b in series]),
        Layer("fresh input", "c-fresh", [b.cost_fresh_nusd for b in series]),
        Layer("output", "c-out", [b.cost_out_nusd for b in series]),
    ]
    if any(b.cost_failed_nusd for b in series):
        failed = [b.cost_failed_nusd for b in series]
        layers.append(Layer("calls that failed before", "c-failed", failed))
    columns = time_columns([b.start_ms for b in series], chosen)
    unknown = sum(b.unpriced for b in series)
    told = f" Not in it: {text.plural(unknown, 'request')} of unknown cost." if unknown else ""
    return Block(
        "cost",
        "Cost",
        f"US dollars per {chosen.bucket_title} at the configured prices.{told}",
        [
            START,
            Column("Cached input", "cost_cached_nusd", text.usd),
            Column("Fresh input", "cost_fresh_nusd", text.usd),
            Column("Output", "cost_out_nusd", text.usd),
            *(Column("Failed calls", "cost_failed_nusd", text.usd) for _ in layers[3:]),
        ],
        rows_of(columns, layers),
        stacked(_over_time("Cost", chosen), columns, layers, lambda v: text.usd(round(v))),
        layers,
        _unbilled(series, unknown),
    )


def _unbilled(series: list[Bucket], unknown: int) -> str:
    """Why there is nothing to draw; "" where there is. What nobody knows is not nothing."""
    if any(b.cost_nusd for b in series):
        return ""
    prices = "Prices stand under models.NAME.price in the settings."
    if unknown:
        return f"What {text.plural(unknown, 'request')} of this range cost isn't known. {prices}"
    return f"Nothing was billed in this range. {prices}"


def rows_of(columns: Columns, layers: Sequence[Layer]) -> list[tuple[Any, ...]]:
    """A table's rows: each column's title and its value of every layer."""
    values = zip(*(layer.values for layer in layers), strict=True)
    return [(title, *row) for title, row in zip(columns.titles, values, strict=True)]


def time_columns(starts_ms: Sequence[int], chosen: Range) -> Columns:
    """Columns of time that begin at these."""
    by_day = chosen.bucket_ms * chosen.buckets > 86_400_000
    titles, labels = [], []
    for start_ms in starts_ms:
        at = text.moment(start_ms)
        day = f"{at.day} {at:%b}"
        titles.append(day if chosen.name == "30d" else f"{day} {at:%H:%M}")
        labelled = start_ms % (chosen.tick * chosen.bucket_ms) == 0
        labels.append((day if by_day else f"{at:%H:%M}") if labelled else "")
    return Columns(titles, labels)


def thin(labels: list[str], most: int = 10) -> list[str]:
    """At most ``most`` of the labels, evenly spaced."""
    step = -(-len(labels) // most) or 1
    return [label if index % step == 0 else "" for index, label in enumerate(labels)]


def plain(value: float) -> str:
    return f"{value:.3g}"


def _count(title: str, name: str, form: Callable[[Any], str] = text.exact) -> Column:
    return Column(title, name, form)


def _over_time(what: str, chosen: Range) -> str:
    return f"{what} per {chosen.bucket_title}, {chosen.title}"


def _edge(ms: int) -> str:
    return f"{ms}\u202fms" if ms < 1000 else f"{ms // 1000}\u202fs"
