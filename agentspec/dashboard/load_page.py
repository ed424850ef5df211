"""Load: what happens to speed as requests run together, with and without speculation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentspec.store.board import Look
from agentspec.store.concurrency import Band, Run, bands, merged, run_of
from agentspec.store.sample import sample

from . import text
from .blocks import decimal, label, number, time_ms
from .charts import Columns, Layer, curves
from .context import Context
from .figures import plain
from .sheet import Block, Column, Sheet
from .tiles import Tile
from .view import View

_COLUMNS = ["ts_ms", "e2e_ms", "out_tok", "tpot_ms", "spec_window", "backend"]

ByBackend = Mapping[str, Sequence[Band]]

ENOUGH = 5
"""Requests of either kind below which medians are not held against each other."""


def load(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    found = look.ask(sample, look.slice, _COLUMNS)
    sql = look.take_sql()
    runs: dict[str, list[Run]] = defaultdict(list)
    for *row, backend in found.rows:
        if backend and row[1] is not None:
            runs[backend].append(run_of(*row))
    apart = {name: bands(mine) for name, mine in sorted(runs.items())}
    levels = merged(apart.values())
    blocks = [throughput(levels, found.told), tpot(levels)]
    most = max((band.high for band in levels), default=0)
    busy_ms = sum(ms for band in levels for ms in band.busy_ms.values())
    tokens = sum(t for band in levels for t in band.tokens.values())
    return Sheet(
        "Load",
        "Requests in flight are counted from the rows' own times, for each backend by itself, of "
        "what the filters let through: all but those by backend leave some of them uncounted.",
        [
            Tile("Requests", text.count(sum(map(len, runs.values()))), found.told),
            Tile("Most at once", f"up to {most}" if most else text.UNKNOWN, "at one backend"),
            Tile("Busy", text.duration(busy_ms), f"{text.plural(len(apart), 'backend')} together"),
            Tile(
                "Throughput",
                text.decimal(1000 * tokens / busy_ms if busy_ms else None, 1),
                "tokens/s while busy",
            ),
        ],
        warnings(apart),
        [replace(block, sql=sql, rows_url=view.rows()) for block in blocks]
        + [replace(_speedup(apart), sql=sql, rows_url=view.rows())],
    )


def throughput(levels: list[Band], told: str) -> Block:
    """Tokens per second of a backend's requests together by concurrency, and by arm."""
    layers = [
        Layer("all", "c-out", [band.all_tok_s for band in levels]),
        Layer("speculating", "c-accept", [band.tok_s("on") for band in levels]),
        Layer("control windows", "c-ttft", [band.tok_s("off") for band in levels]),
    ]
    columns = Columns([f"{b.title} in flight" for b in levels], [b.title for b in levels])
    title = "Throughput by requests in flight"
    return Block(
        "throughput",
        title,
        f"Tokens/s of a backend's requests together, over {told}. Control windows: stretches in "
        "which the whole engine does without speculation.",
        [
            label("In flight", "in_flight"),
            number("Requests", "requests"),
            time_ms("Time", "busy_ms"),
            decimal("Tokens/s", "tok_s"),
            decimal("Speculating", "tok_s_on"),
            decimal("Control", "tok_s_off"),
        ],
        [
            (
                b.title,
                b.runs,
                sum(b.busy_ms.values()),
                b.all_tok_s,
                b.tok_s("on"),
                b.tok_s("off"),
            )
            for b in levels
        ],
        curves(title, columns, layers, plain),
        layers,
        "" if levels else "No request of this range has ended.",
    )


def tpot(levels: list[Band]) -> Block:
    """Median time per output token by concurrency, and by arm."""
    arms = (("speculating", "c-accept", "on"), ("control windows", "c-ttft", "off"))
    arms += (("other", "c-e2e", "mixed"),)
    layers = [
        Layer(name, color, [band.median_tpot_ms(arm) for band in levels])
        for name, color, arm in arms
    ]
    columns = Columns([f"{b.title} in flight" for b in levels], [b.title for b in levels])
    title = "Time per token by requests in flight"
    known = any(value is not None for layer in layers for value in layer.values)
    return Block(
        "tpot",
        title,
        "Median time per output token after the first, by the number in flight when a request was "
        "taken in (itself included). Where both lines meet, speculation no longer pays.",
        [
            label("In flight", "in_flight"),
            time_ms("Speculating", "tpot_on_ms"),
            time_ms("Control", "tpot_off_ms"),
            time_ms("Other", "tpot_other_ms"),
        ],
        [(b.title, *(b.median_tpot_ms(arm) for _, _, arm in arms)) for b in levels],
        curves(title, columns, layers, text.duration),
        layers,
        "" if known else "No request of this range tells its time per token.",
    )


def _speedup(apart: ByBackend) -> Block:
    rows = [
        (
            name,
            b.title,
            len(b.tpot_ms["on"]),
            len(b.tpot_ms["off"]),
            _ratio(b) if _enough(b) else None,
        )
        for name, levels in apart.items()
        for b in levels
    ]
    known = [row for row in rows if row[2] and row[3]]
    return Block(
        "speedup",
        "Speculation against its control",
        "Median time per token in control windows over that while speculating: under 1 it costs. "
        f"A dash: fewer than {ENOUGH} requests of either.",
        [
            label("Backend", "backend"),
            label("In flight", "in_flight"),
            number("Speculating", "requests_on"),
            number("Control", "requests_off"),
            Column("Speedup", "speedup", _times),
        ],
        known,
        empty=""
        if known
        else "No concurrency has requests of both. Control windows are set by "
        "engine.control_share; a backend without them tells none.",
    )


def _times(value: float | None) -> str:
    return text.UNKNOWN if value is None else f"{value:.2f}\u00d7"


def _enough(band: Band) -> bool:
    return min(len(band.tpot_ms["on"]), len(band.tpot_ms["off"])) >= ENOUGH


def _ratio(band: Band) -> float | None:
    on, off = band.median_tpot_ms("on"), band.median_tpot_ms("off")
    return off / on if on and off else None


def warnings(apart: ByBackend) -> list[str]:
    """A line for each concurrency at which speculation is slower than its control."""
    found = []
    for name, band in ((name, band) for name, levels in apart.items() for band in levels):
        speedup = _ratio(band)
        if _enough(band) and speedup is not None and speedup < 1:
            found.append(
                f"With {band.title} in flight at '{name}' speculation is slower than its control: "
                f"{speedup:.2f}\u00d7."
            )
    return found
