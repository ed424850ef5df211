"""One session of an agent: its turns as bars over time, with their tool calls and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from agentspec.store.record import CallRecord, RequestRecord
from agentspec.store.session_list import Session

from . import text
from .svg import drawing, percent, tag
from .tiles import Tile

_ROW, _HEAD, _LEFT = 18, 22, 7.0
"""Pixels of a turn's row and of the axis; room for the turns' numbers (per cent of the width)."""
DRAWN = 120
"""Turns that are drawn: the newest; the table has all."""


@dataclass(frozen=True, slots=True)
class Turn:
    """number: from 1; wait_ms: from the end of the turn before to this one's start."""

    number: int
    record: RequestRecord
    calls: Sequence[CallRecord]
    wait_ms: float | None


def shown(
    found: Session, rows: Sequence[RequestRecord], calls: Mapping[str, Sequence[CallRecord]]
) -> dict[str, Any]:
    """What the page's template is given."""
    turns = turns_of(found, rows, calls)
    return {
        "session": found,
        "turns": turns,
        "tiles": _tiles(found, turns),
        "picture": picture(turns[-DRAWN:]) if turns else None,
        "left_out": found.requests - len(turns),
    }


def turns_of(
    found: Session, rows: Sequence[RequestRecord], calls: Mapping[str, Sequence[CallRecord]]
) -> list[Turn]:
    """The turns in order of time, numbered as all of the session's are."""
    first = found.requests - len(rows) + 1
    turns, before = [], None
    for number, row in enumerate(rows, max(first, 1)):
        wait = None if before is None else max(0.0, row.ts_ms - before)
        turns.append(Turn(number, row, calls.get(row.id, ()), wait))
        before = row.ts_ms + (row.e2e_ms or 0.0)
    return turns


def picture(turns: Sequence[Turn]) -> Markup:
    """A bar a turn: to its first token, then to its end."""
    since_ms = turns[0].record.ts_ms
    until_ms = max(t.record.ts_ms + (t.record.e2e_ms or 0.0) for t in turns)
    scale = (99.5 - _LEFT) / max(until_ms - since_ms, 1.0)

    def x(ms: float) -> float:
        return _LEFT + (ms - since_ms) * scale

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        ms = (until_ms - since_ms) * share
        at, height = percent(x(since_ms + ms)), _HEAD + _ROW * len(turns)
        parts.append(tag("line", class_="grid", x1=at, x2=at, y1=_HEAD - 4, y2=height))
        anchor = "x end" if share == 1 else "x"
        parts.append(tag("text", text.duration(ms), class_=anchor, x=at, y=13))
    for index, turn in enumerate(turns):
        parts.append(_bar(turn, _HEAD + index * _ROW, x))
    label = f"{text.plural(len(turns), 'turn')} over {text.duration(until_ms - since_ms)}"
    return drawing(label, *parts, height=_HEAD + _ROW * len(turns) + 6)


def _bar(turn: Turn, y: int, x: Any) -> Markup:
    row = turn.record
    began, end = row.ts_ms, row.ts_ms + (row.e2e_ms or 0.0)
    first = min(began + (row.ttft_ms or 0.0), end)
    told = [f"turn {turn.number}: {row.status}, {text.duration(row.e2e_ms)}"]
    told += [f"{text.exact(row.out_tok)} tokens, {text.usd(row.cost_nusd)}"]
    told += [f"calls {call.name}" for call in turn.calls]
    bad = row.status in ("error", "lost")
    marks = [tag("title", "\n".join(told))]
    for start, stop, color in ((began, first, "c-ttft"), (first, end, "c-e2e")):
        width = max(x(stop) - x(start), 0.0)
        kind = f"bar {'c-failed' if bad else color}"
        if width:
            place = {"x": percent(x(start)), "width": percent(max(width, 0.15))}
            marks.append(tag("rect", class_=kind, y=y + 3, height=_ROW - 6, **place))
    if end == began:
        marks.append(tag("circle", class_="dot c-failed", cx=percent(x(began)), cy=y + 9, r=4))
    number = tag("text", str(turn.number), class_="y", x=percent(_LEFT - 1.2), y=y + 13)
    return tag("g", *marks, number)


def _tiles(found: Session, turns: Sequence[Turn]) -> list[Tile]:
    calls = sum(len(turn.calls) for turn in turns)
    repaired = sum(call.repaired for turn in turns for call in turn.calls)
    unknown = sum(turn.record.cost_nusd is None for turn in turns)
    valid = f"{text.exact(found.tool_calls_valid)} valid, {text.exact(repaired)} mended"
    cached = found.cached_tok / found.in_tok if found.in_tok else None
    cost = "unknown" if unknown and not found.cost_nusd else text.usd(found.cost_nusd)
    length = 1 + found.spec_accepted / found.spec_steps if found.spec_steps else None
    note = f"{text.plural(unknown, 'request')} of unknown cost" if unknown else "all priced"
    waited = sum(turn.wait_ms or 0.0 for turn in turns)
    return [
        Tile(
            "Requests",
            text.exact(found.requests),
            f"{text.exact(found.failed)} failed",
            alarm=found.failed > 0,
        ),
        Tile("From first to last", text.duration(found.span_ms), "between their starts"),
        Tile(
            "Served in",
            text.duration(found.e2e_us / 1000),
            f"the agent itself took {text.duration(waited)}",
        ),
        Tile("Cost", cost, note),
        Tile("Tool calls", text.exact(max(found.tool_calls, calls)), valid),
        Tile("Tokens in", text.count(found.in_tok), f"{text.share(cached)} from the cache"),
        Tile("Tokens out", text.count(found.out_tok), ""),
        Tile("Accepted length", text.decimal(length), "tokens a step"),
    ]
