"""Latency: percentiles of every kind of time, and goodput at limits given in the URL."""

from __future__ import annotations

from dataclasses import replace

from agentspec.store.board import Look
from agentspec.store.goodput import Good, Level, goodput
from agentspec.store.latency import PERCENTILES, latency
from agentspec.store.sample import Sample, sample
from agentspec.store.times import ALL, Times, times
from agentspec.store.totals import few

from . import text
from .blocks import asked, label, number, share, time_ms
from .charts import Columns, Layer, stacked
from .context import Context
from .figures import latencies
from .params import positive
from .sheet import Block, Field, Sheet
from .tiles import Tile
from .view import View

_TITLES = {
    "ttft": "First token",
    "tpot": "Per token after it",
    "e2e": "Whole answer",
    "queue": "Queued",
}
_SLO = {"ttft_ms": 2000.0, "tpot_ms": 100.0, "e2e_ms": 60_000.0}
"""The limits where the URL gives none."""
_COLUMNS = ["backend", "status", "ttft_ms", "tpot_ms", "e2e_ms", "out_tok"]


def latency_page(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    level = Level(**{name: positive(view, name, default) for name, default in _SLO.items()})
    found = look.ask(sample, look.slice, _COLUMNS)
    good = goodput(found.rows, level)
    blocks = [asked(look, good_block(good, level, found), view.rows())]
    rows = look.slice.rows or look.ask(few, look.slice)
    look.take_sql()
    ttft = look.ask(latency, look.slice, "ttft", rows=rows)
    e2e = look.ask(latency, look.slice, "e2e", rows=rows)
    blocks.append(asked(look, latencies(ttft, e2e), view.rows(status="ok")))
    told = look.ask(times, look.slice, "backend")
    whole = told[ALL]
    blocks.append(asked(look, _percentiles(told, "backend", view)))
    by_model = look.ask(times, look.slice, "model")
    blocks.append(asked(look, _percentiles(by_model, "model", view)))
    everyone = sum(one.good for one in good.values())
    counted = sum(one.good + one.late + one.failed for one in good.values())
    tiles = [
        Tile(
            _TITLES[kind],
            text.duration(found_ms.get(50)),
            f"p50; p95 {text.duration(found_ms.get(95))}, p99 {text.duration(found_ms.get(99))}",
        )
        for kind, (_, found_ms) in whole.items()
    ]
    kept = text.share(everyone / counted if counted else None)
    tiles.append(Tile("Goodput", kept, f"of {text.count(counted)} met every limit"))
    values = {name: getattr(level, name) for name in _SLO}
    fields = [
        Field(name, f"{_TITLES[name[:-3]]}, ms", f"{values[name]:g}", hint="limit") for name in _SLO
    ]
    return Sheet(
        "Latency",
        "Of answered requests. Tokens of a speculating engine arrive in clumps: time per token is "
        "the whole time after the first token over the tokens after it.",
        tiles,
        blocks=blocks,
        fields=fields,
    )


def good_block(good: dict[str, Good], level: Level, found: Sample) -> Block:
    """Requests within the limits, by backend."""
    names = sorted(good)
    titles = [name or "(ran nowhere)" for name in names]
    layers = [
        Layer("within the limits", "c-ok", [good[name].good for name in names]),
        Layer("late", "c-ttft", [good[name].late for name in names]),
        Layer("failed or lost", "c-failed", [good[name].failed for name in names]),
    ]
    limits = ", ".join(
        f"{_TITLES[name[:-3]].lower()} {text.duration(getattr(level, name))}" for name in _SLO
    )
    title = "Goodput"
    return Block(
        "goodput",
        title,
        f"Answered within every limit ({limits}), over {found.told}; clients that left count "
        "neither way. Change the limits above.",
        [
            label("Backend", "backend"),
            number("Within", "good"),
            number("Late", "late"),
            number("Failed", "failed"),
            share("Goodput", "goodput_share"),
        ],
        [
            (name, good[name].good, good[name].late, good[name].failed, good[name].share)
            for name in names
        ],
        stacked(title, Columns(titles, titles), layers, text.count, whole=True),
        layers,
        "" if names else "No request in this range.",
    )


def _percentiles(told: dict[str, Times], by: str, view: View) -> Block:
    rows = [
        (group, _TITLES[kind], count, *(found.get(p) for p in PERCENTILES))
        for group, kinds in told.items()
        if group != ALL
        for kind, (count, found) in kinds.items()
        if count
    ]
    block = Block(
        f"by_{by}",
        f"Percentiles by {by}",
        "Read from log histograms: within 0.55 % of a time that was measured.",
        [
            label(by.capitalize(), by),
            label("Time", "time"),
            number("Requests", "requests"),
            *(time_ms(f"p{p}", f"p{p}_ms") for p in PERCENTILES),
        ],
        rows,
        empty="" if rows else "No request finished in this range.",
    )
    return replace(block, links=[view.rows(**{by: row[0], "status": "ok"}) for row in rows])
