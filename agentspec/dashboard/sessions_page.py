"""Sessions: agents' runs, the last ones first."""

from __future__ import annotations

from agentspec.store.board import Look
from agentspec.store.session_list import KNOWN, Session, sessions, without_a_cost

from . import text
from .blocks import asked, decimal, label, money, number, ratio, share, time_ms
from .context import Context
from .cursor import parse_cursor
from .sheet import Block, Sheet
from .tiles import Tile
from .view import View

SIZE = 100
"""Sessions of one page."""


def sessions_page(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    where = {name: value for name, value in look.slice.where.items() if name in KNOWN}
    after = parse_cursor(view.params.get("after", ""))
    found = look.ask(sessions, look.window, SIZE + 1, where, after)
    more, found = len(found) > SIZE, found[:SIZE]
    last = found[-1] if found else None
    older = view.url(None, after=f"{last.last_ms}.{last.session_id}") if more and last else ""
    left_aside = sorted(name for name in look.slice.where if name not in KNOWN)
    calls = sum(one.tool_calls for one in found)
    unknown = look.ask(without_a_cost, found)
    known = [one.cost_nusd for one in found if (one.session_id, one.key_id) not in unknown]
    return Sheet(
        "Sessions",
        "An agent's run: all of its requests, also those outside of the range. Shown are those "
        "whose last request lies in it.",
        [
            Tile("Shown", text.exact(len(found)), "sessions, the last first"),
            Tile("Known cost", text.usd(sum(known) if known else None), "of these"),
            Tile("Requests", text.count(sum(one.requests for one in found)), "of them"),
            Tile("Tool calls", text.count(calls), "that they made"),
        ],
        [f"Sessions span these, which filter nothing here: {', '.join(left_aside)}."]
        if left_aside
        else [],
        [asked(look, _table(found, view, unknown))],
        older=older,
    )


def _table(found: list[Session], view: View, unknown: set[tuple[str, str]]) -> Block:
    return Block(
        "sessions",
        "Sessions",
        "Span: from the first request to the last one. Served: the time of all requests together.",
        [
            label("Session", "session_id"),
            label("Last request (UTC)", "last_utc"),
            label("Client", "client"),
            label("Model", "model"),
            number("Requests", "requests"),
            number("Failed", "failed"),
            number("Tool calls", "tool_calls"),
            time_ms("Span", "span_ms"),
            time_ms("Served", "served_ms"),
            number("In", "in_tok"),
            share("Cached", "cached_share"),
            number("Out", "out_tok"),
            decimal("Tokens a step", "accepted_length"),
            money("Known cost", "cost_nusd"),
        ],
        [
            (
                one.session_id,
                text.clock_time(one.last_ms, view.now_ms),
                one.client,
                one.model,
                one.requests,
                one.failed,
                one.tool_calls,
                one.span_ms,
                one.e2e_us / 1000,
                one.in_tok,
                ratio(one.cached_tok, one.in_tok),
                one.out_tok,
                1 + one.spec_accepted / one.spec_steps if one.spec_steps else None,
                None if (one.session_id, one.key_id) in unknown else one.cost_nusd,
            )
            for one in found
        ],
        links=[view.session(one.session_id, one.key_id) for one in found],
        empty="" if found else f"No named session had a request in the {view.chosen.title}.",
    )
