"""The first page: everything about a window at a glance."""

from __future__ import annotations

from dataclasses import replace

from agentspec.store.acceptance import acceptance
from agentspec.store.board import Look
from agentspec.store.breakdown import Place, breakdown
from agentspec.store.latency import latency
from agentspec.store.reader import Overview
from agentspec.store.requests import recent
from agentspec.store.series import series
from agentspec.store.totals import few, totals

from .blocks import decimal, label, money, number
from .figures import figures
from .sheet import Block
from .view import View


def overview(look: Look, view: View, newest: int = 20) -> tuple[Overview, list[Block]]:
    """The answers, and what is drawn and told of them."""
    slice = look.slice
    rows = slice.rows or look.ask(few, slice)
    look.take_sql()
    sql = {}

    def noted(name: str, answer):
        sql[name] = look.take_sql()
        return answer

    found = Overview(
        totals=noted("totals", look.ask(totals, slice)),
        series=noted("series", look.ask(series, slice, view.chosen.bucket_ms)),
        acceptance=noted("acceptance", look.ask(acceptance, slice)),
        ttft=look.ask(latency, slice, "ttft", rows=rows),
        e2e=noted("latency", look.ask(latency, slice, "e2e", rows=rows)),
        places=noted("places", look.ask(breakdown, slice)),
        recent=look.ask(recent, look.window, newest, where=slice.where),
    )
    look.take_sql()
    blocks = [*figures(found, view.chosen), places(found.places, view)] if found.recent else []
    behind = {"positions": "acceptance", "lengths": "acceptance", "times": "latency"}
    behind |= {"places": "places"}
    told = [replace(b, sql=sql[behind.get(b.slug, "series")]) for b in blocks]
    return found, [b if b.links else replace(b, rows_url=view.rows()) for b in told]


def places(found: list[Place], view: View) -> Block:
    """Sums by model and backend."""
    return Block(
        "places",
        "Models and backends",
        "The busiest pairs.",
        [
            label("Model", "model"),
            label("Backend", "backend"),
            number("Requests", "requests"),
            number("Failed", "failed"),
            number("In", "in_tok"),
            number("Cached", "cached_tok"),
            number("Out", "out_tok"),
            decimal("Tokens a step", "accepted_length"),
            money("Known cost", "cost_nusd"),
        ],
        [
            (
                p.model,
                p.backend,
                p.requests,
                p.failed,
                p.in_tok,
                p.cached_tok,
                p.out_tok,
                p.accepted_length,
                p.known_nusd,
            )
            for p in found
        ],
        links=[view.rows(model=p.model, backend=p.backend) for p in found],
    )
