"""Speculation: how far drafts carry, which source they come from, and what is drafted in vain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agentspec.store.acceptance import Acceptance, acceptance
from agentspec.store.board import Look
from agentspec.store.grouping import grouped, readable
from agentspec.store.sample import Sample, sample
from agentspec.store.series import series

from . import text
from .blocks import asked, decimal, label, number, ratio, share, where_told
from .charts import Columns, Layer, curves, stacked
from .context import Context
from .figures import (
    START,
    accepted_lengths,
    by_position,
    length_over_time,
    rows_of,
    thin,
    time_columns,
)
from .heat import heat
from .sheet import Block, Sheet
from .tiles import Tile
from .view import View

NO_MODELS = frozenset({"forced", "suffix", "suffix_tree", "ngram"})
"""Sources of drafts that no model drafts."""
WHOLE_SERVERS = frozenset({"vllm", "sglang", "llamacpp"})
"""Sources that are servers of others, which don't tell who drafts there."""
LEAST = 0.5
"""Acceptance of model drafts under which verifying them seldom pays."""
_ADVICE = {
    "Model drafts": "a draft trained on this traffic, shorter ones, or none would serve it better.",
    "Drafts": "this server doesn't tell a model's from copied ones; a model's seldom pay so.",
}
FEWEST = 100
"""Drafted tokens of a class before it is judged."""
_SUMS = ("requests", "out_tok", "forced_tok", "spec_steps", "spec_drafted", "spec_accepted")
_COLUMNS = ["workload", "spec_sources", "spec_steps", "spec_accepted", "model", "backend"]
_COLUMNS += ["id", "spec_drafted", "out_tok"]
_BY_CLASS = "Acceptance by draft position and class of work"
_PALETTE = ("c-accept", "c-out", "c-ttft", "c-e2e", "c-fresh", "c-cached")

Pairs = dict[tuple[str, str], list[int]]


def speculation(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    slice = look.slice
    (whole,) = look.ask(grouped, slice, _SUMS).values()
    look.take_sql()
    hist = look.ask(acceptance, slice)
    asked_hist = look.take_sql()
    found = look.ask(sample, slice, _COLUMNS, some="spec_steps")
    pairs = by_workload_and_source(found.rows)
    heated = asked(look, heat_block(pairs, found), view.rows())
    blocks = [
        *(
            replace(block, sql=asked_hist, rows_url=view.rows())
            for block in (by_position(hist), accepted_lengths(hist))
        ),
        where_told(look, "by_class", _BY_CLASS, lambda: _positions(look, view)),
        heated,
        asked(look, _waste(look, view), view.rows()),
        asked(look, _drift(look, view), view.rows()),
        where_told(look, "classes", "Classes of work", lambda: _by_class(look, view)),
        replace(_outliers(found, view), sql=heated.sql, rows_url=view.rows()),
    ]
    return Sheet(
        "Speculation",
        "Drafted tokens only: those that a grammar forced are counted apart, and in no rate but "
        "their own column's of the map.",
        _tiles(whole, hist, found),
        list(warnings(found.rows)),
        blocks,
    )


def _drift(look: Look, view: View) -> Block:
    return length_over_time(look.ask(series, look.slice, view.chosen.bucket_ms), view.chosen)


def by_workload_and_source(rows: Iterable[tuple]) -> Pairs:
    """(workload, source) -> [drafted, accepted]."""
    pairs: Pairs = defaultdict(lambda: [0, 0])
    for workload, sources, *_ in rows:
        for source, told in sources.items():
            into = pairs[workload, source]
            into[0] += told.get("drafted", 0)
            into[1] += told.get("accepted", 0)
    return dict(pairs)


def warnings(rows: Iterable[tuple]) -> Iterable[str]:
    """A line for each class of work of a model on a backend whose model drafts are accepted too
    seldom: a good draft beside it makes no bad one better. rows: those of ``_COLUMNS``."""
    drafts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for workload, sources, _, _, model, backend, *_ in rows:
        for source, told in sources.items():
            if source not in NO_MODELS:
                whose = "Drafts" if source in WHOLE_SERVERS else "Model drafts"
                into = drafts[workload, model, backend, whose]
                into[0] += told.get("drafted", 0)
                into[1] += told.get("accepted", 0)
    for (workload, model, backend, whose), (drafted, accepted) in sorted(drafts.items()):
        if drafted >= FEWEST and accepted < LEAST * drafted:
            yield (
                f"{whose} of the class '{workload}' ({model} on {backend}) are accepted at "
                f"{text.share(accepted / drafted)} of {drafted:,} tokens, under "
                f"{text.share(LEAST)}: {_ADVICE[whose]}"
            )


def _positions(look: Look, view: View) -> Block:
    """A line for each of the classes with the most steps; one class has nothing to be told from."""
    slice = look.slice
    found = look.ask(grouped, slice, ("spec_steps",), by=("workload",))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["spec_steps"], item[0]))
    names = [key[0] for key, one in ranked if one["spec_steps"]][: len(_PALETTE)]
    told = []
    for name in names if len(names) > 1 else []:
        where = {**slice.where, "workload": name}
        part = look.ask(readable, replace(slice, where=where), set(where))
        told.append(look.ask(acceptance, part).by_position)
    deepest = max(map(len, told), default=0)
    layers = [
        Layer(name or "(none)", color, [*shares, *[0.0] * (deepest - len(shares))])
        for name, color, shares in zip(names, _PALETTE, told, strict=False)
    ]
    places = [str(place) for place in range(1, deepest + 1)]
    axis = Columns([f"position {place}" for place in places], thin(places))
    return Block(
        "by_class",
        _BY_CLASS,
        "As above, of the classes with the most verification steps.",
        [label("Position", "position")]
        + [share(layer.name, f"accepted_share_{layer.name}") for layer in layers],
        [(place, *row[1:]) for place, row in zip(places, rows_of(axis, layers), strict=True)],
        curves(_BY_CLASS, axis, layers, text.share, highest=1.0),
        layers,
        "" if layers else "No two classes of work verified drafts in this range.",
        rows_url=view.rows(),
    )


def heat_block(pairs: Pairs, found: Sample) -> Block:
    workloads = sorted({workload for workload, _ in pairs})
    sources = sorted({source for _, source in pairs})
    rates = [[_rate(pairs.get((w, s))) for s in sources] for w in workloads]
    rows = [(w, s, d, a, d - a, ratio(a, d)) for (w, s), (d, a) in sorted(pairs.items())]
    return Block(
        "sources",
        "Acceptance by class of work and source of drafts",
        f"Accepted among drafted tokens, over {found.told} that verified drafts.",
        [
            label("Class", "workload"),
            label("Source", "source"),
            number("Drafted", "drafted_tok"),
            number("Accepted", "accepted_tok"),
            number("In vain", "rejected_tok"),
            share("Rate", "acceptance_rate"),
        ],
        rows,
        heat("Acceptance by class of work and source of drafts", workloads, sources, rates),
        empty="" if pairs else "No request of this range tells the sources of its drafts.",
    )


def _rate(pair: list[int] | None) -> float | None:
    return ratio(pair[1], pair[0]) if pair else None


def _waste(look: Look, view: View) -> Block:
    size_ms = view.chosen.bucket_ms
    found = look.ask(
        grouped, look.slice, ("spec_drafted", "spec_accepted", "forced_tok"), bucket_ms=size_ms
    )
    window = view.window
    starts = list(range(window.since_ms, window.until_ms, size_ms))
    told: list[Mapping[str, int]] = [found.get((at,), {}) for at in starts]
    accepted = [one.get("spec_accepted", 0) for one in told]
    rejected = [one.get("spec_drafted", 0) - one.get("spec_accepted", 0) for one in told]
    forced = [one.get("forced_tok", 0) for one in told]
    layers = [
        Layer("accepted", "c-accept", accepted),
        Layer("in vain", "c-failed", rejected),
        Layer("forced by a grammar", "c-cached", forced),
    ]
    columns = time_columns(starts, view.chosen)
    title = "Drafted tokens, and those in vain"
    return Block(
        "waste",
        title,
        f"Per {view.chosen.bucket_title}: verified and kept, verified in vain, and set by a "
        "grammar, which costs no verification.",
        [START, number("Accepted", "accepted_tok"), number("In vain", "rejected_tok")]
        + [number("Forced", "forced_tok")],
        rows_of(columns, layers),
        stacked(title, columns, layers, text.count, whole=True),
        layers,
        "" if any(accepted) or any(rejected) or any(forced) else "Nothing was drafted.",
    )


def _by_class(look: Look, view: View) -> Block:
    found = look.ask(grouped, look.slice, _SUMS, by=("workload", "model", "backend"))
    rows, links = [], []
    for (workload, model, backend), one in sorted(found.items()):
        if one["spec_steps"]:
            accepted, drafted = one["spec_accepted"], one["spec_drafted"]
            length, rate = 1 + accepted / one["spec_steps"], ratio(accepted, drafted)
            vain = drafted - accepted
            rows.append((workload, model, backend, one["requests"], length, rate, vain))
            links.append(view.rows(workload=workload, model=model, backend=backend))
    return Block(
        "classes",
        "Classes of work",
        "Over all steps of a class: long answers weigh more.",
        [
            label("Class", "workload"),
            label("Model", "model"),
            label("Backend", "backend"),
            number("Requests", "requests"),
            decimal("Tokens a step", "accepted_length"),
            share("Rate", "acceptance_rate"),
            number("In vain", "rejected_tok"),
        ],
        rows,
        links=links,
        empty="" if rows else "No request verified drafts in this range.",
    )


def _outliers(found: Sample, view: View) -> Block:
    """Acceptance near 0 may be garbled text, near 1 a loop of repetitions (vLLM PR 44487)."""
    judged = [
        (id, workload, model, out_tok, drafted, accepted / drafted)
        for workload, _, _, accepted, model, _, id, drafted, out_tok in found.rows
        if drafted >= FEWEST
    ]
    ranked = sorted(judged, key=lambda row: (min(row[5], 1 - row[5]), row[0]))
    rows: list[tuple[Any, ...]] = [r for r in ranked if r[5] < 0.05 or r[5] > 0.98][:20]
    return Block(
        "outliers",
        "Requests that stand out",
        f"Under 5 % or over 98 % of {FEWEST} drafted tokens or more accepted: garbled text shows "
        f"as the one, a loop of repetitions as the other. Of {found.told}.",
        [
            label("Request", "id"),
            label("Class", "workload"),
            label("Model", "model"),
            number("Out", "out_tok"),
            number("Drafted", "drafted_tok"),
            share("Rate", "acceptance_rate"),
        ],
        rows,
        links=[view.request(row[0]) for row in rows],
        empty="" if rows else "None does.",
    )


def _tiles(whole: Mapping[str, int], hist: Acceptance, found: Sample) -> list[Tile]:
    drafted, accepted = whole["spec_drafted"], whole["spec_accepted"]
    lengths = [1 + row[3] / row[2] for row in found.rows if row[2]]
    mean = sum(lengths) / len(lengths) if lengths else None
    return [
        Tile(
            "Accepted length",
            text.decimal(hist.mean_length),
            f"tokens a step, over {text.count(hist.steps)} steps",
        ),
        Tile("The same, by request", text.decimal(mean), f"each request counts once; {found.told}"),
        Tile("Acceptance rate", text.share(ratio(accepted, drafted)), "of drafted tokens"),
        Tile("Drafted in vain", text.count(drafted - accepted), f"of {text.count(drafted)} tokens"),
        Tile("Forced", text.count(whole["forced_tok"]), "tokens set by a grammar"),
    ]
