"""The numbers at the top of the first page."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.store.reader import Overview

from . import text


@dataclass(frozen=True, slots=True)
class Tile:
    """A number, what it counts, and the smaller print below it."""

    name: str
    value: str
    note: str
    alarm: bool = False


def tiles(overview: Overview) -> list[Tile]:
    """All tiles, in the order of the page."""
    t, acceptance = overview.totals, overview.acceptance
    ttft, e2e = overview.ttft.percentile_ms, overview.e2e.percentile_ms
    priced = t.requests - t.unpriced
    spent = f"{text.usd(t.cost_nusd // priced if priced else None)} a request"
    if t.unpriced:
        spent += f"; of {text.count(t.unpriced)} unknown"
    return [
        Tile("Requests", text.count(t.requests), f"in {text.plural(t.sessions, 'session')}"),
        Tile(
            "Failed",
            text.share(t.failed_share),
            f"{text.plural(t.errors, 'error')}, {text.exact(t.lost)} lost, "
            f"{text.exact(t.cancelled)} cancelled",
            alarm=bool(t.errors + t.lost),
        ),
        Tile("Tokens in", text.count(t.in_tok), f"{text.share(t.cached_share)} from the cache"),
        Tile("Tokens out", text.count(t.out_tok), f"{text.count(t.forced_tok)} set by a grammar"),
        Tile("Spend", text.usd(t.cost_nusd) if priced or not t.unpriced else "unknown", spent),
        Tile(
            "Accepted length",
            text.decimal(acceptance.mean_length),
            f"tokens a step, {text.count(acceptance.steps)} steps",
        ),
        Tile(
            "Acceptance rate",
            text.share(t.acceptance_rate),
            f"of {text.count(t.spec_drafted)} drafted tokens",
        ),
        Tile("Decode speed", text.decimal(t.decode_tok_s, 1), "tokens/s in one stream"),
        Tile("First token", text.duration(ttft.get(50)), f"p50; p95 {text.duration(ttft.get(95))}"),
        Tile("Whole answer", text.duration(e2e.get(50)), f"p50; p95 {text.duration(e2e.get(95))}"),
    ]
