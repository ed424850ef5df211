"""Cache: how much of the input was found in a prefix cache, by whom, and after which pauses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.sample import Sample, sample
from agentspec.store.series import series
from agentspec.store.session_list import KNOWN, sessions

from . import text
from .blocks import asked, bars, label, number, ratio, share, where_told
from .charts import Layer
from .context import Context
from .figures import input_over_time
from .sheet import Block, Sheet
from .tiles import Tile
from .view import View

_SUMS = ("requests", "in_tok", "cached_tok")
GAPS = ((60, "under 1 min"), (300, "1 to 5 min"), (3600, "5 min to 1 h"), (None, "over 1 h"))
"""Upper limits of a pause, seconds."""
_SESSIONS = 20


def cache(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    slice = look.slice
    (whole,) = look.ask(grouped, slice, _SUMS).values()
    look.take_sql()
    told = look.ask(series, slice, view.chosen.bucket_ms)
    blocks = [asked(look, input_over_time(told, view.chosen), view.rows())]
    columns = ["session_id", "key_id", "ts_ms", "in_tok", "cached_tok", "cache_write_tok"]
    found = look.ask(sample, slice, columns)
    blocks.append(asked(look, gaps(found), view.rows()))
    for name in ("client", "backend", "model"):
        build = partial(_by, look, view, name)
        blocks.append(where_told(look, f"by_{name}", f"By {name}", build))
    blocks.append(asked(look, _by_session(look, view)))
    written = [row[5] for row in found.rows if row[5] is not None]
    return Sheet(
        "Cache",
        "Prompt tokens found in a prefix cache, the engine's own or a vendor's, as each reports "
        "them.",
        [
            Tile(
                "Hit share",
                text.share(ratio(whole["cached_tok"], whole["in_tok"])),
                "of prompt tokens",
            ),
            Tile("From the cache", text.count(whole["cached_tok"]), "prompt tokens"),
            Tile("Fresh", text.count(whole["in_tok"] - whole["cached_tok"]), "prompt tokens"),
            Tile(
                "Written to a cache",
                text.count(sum(written)) if written else text.UNKNOWN,
                f"tokens that a vendor bills apart, of {found.told}",
            ),
        ],
        blocks=blocks,
    )


def pauses(rows: Iterable[tuple]) -> dict[str, list[int]]:
    """Pause before a turn -> [turns, input tokens, cached tokens], of rows (session, key, ts_ms,
    in_tok, cached_tok, ...). A session's first turn among them has no pause and isn't counted."""
    turns = defaultdict(list)
    for row in rows:
        if row[0]:
            turns[row[0], row[1]].append(row[2:5])
    found = {title: [0, 0, 0] for _, title in GAPS}
    for mine in turns.values():
        mine.sort()
        for before, (ts_ms, in_tok, cached) in zip(mine, mine[1:], strict=False):
            gap_s = (ts_ms - before[0]) / 1000
            title = next(title for limit, title in GAPS if limit is None or gap_s < limit)
            for at, value in enumerate((1, in_tok, cached)):
                found[title][at] += value
    return found


def gaps(found: Sample) -> Block:
    told = pauses(found.rows)
    names = [title for _, title in GAPS]
    rates = [ratio(told[name][2], told[name][1]) for name in names]
    block = bars(
        "pauses",
        "Cache hits by the pause before a turn",
        "Share of a turn's prompt found in the cache, by the time since its session's turn before; "
        f"over {found.told}.",
        [label("Pause", "pause"), share("From the cache", "cached_share")],
        names,
        [Layer("from the cache", "c-fresh", [rate or 0 for rate in rates])],
        text.share,
        empty="" if any(told[name][0] for name in names) else "No session has a second turn here.",
    )
    columns = [label("Pause", "pause"), number("Turns", "turns"), number("In", "in_tok")]
    columns += [number("Cached", "cached_tok"), share("From the cache", "cached_share")]
    rows = [(name, *told[name], rate) for name, rate in zip(names, rates, strict=True)]
    return replace(block, columns=columns, rows=rows)


def _by(look: Look, view: View, name: str) -> Block:
    found = look.ask(grouped, look.slice, _SUMS, by=(name,))
    ranked = sorted(found.items(), key=lambda item: (-item[1]["in_tok"], item[0]))
    rows = [(k[0], *v.values(), ratio(v["cached_tok"], v["in_tok"])) for k, v in ranked]
    return Block(
        f"by_{name}",
        f"By {name}",
        "The most input first.",
        [
            label(name.capitalize(), name),
            number("Requests", "requests"),
            number("In", "in_tok"),
            number("Cached", "cached_tok"),
            share("From the cache", "cached_share"),
        ],
        rows,
        links=[view.rows(**{name: row[0]}) for row in rows],
        empty="" if rows else "No request in this range.",
    )


def _by_session(look: Look, view: View) -> Block:
    where = {name: value for name, value in look.slice.where.items() if name in KNOWN}
    found = look.ask(sessions, look.window, _SESSIONS, where)
    rows = [
        (s.session_id, s.client, s.requests, s.in_tok, s.cached_tok, ratio(s.cached_tok, s.in_tok))
        for s in found
    ]
    return Block(
        "by_session",
        "By session",
        f"The last {_SESSIONS} sessions, with all of their requests.",
        [
            label("Session", "session_id"),
            label("Client", "client"),
            number("Requests", "requests"),
            number("In", "in_tok"),
            number("Cached", "cached_tok"),
            share("From the cache", "cached_share"),
        ],
        rows,
        links=[view.session(s.session_id, s.key_id) for s in found],
        empty="" if rows else "No named session ended a request in this range.",
    )
