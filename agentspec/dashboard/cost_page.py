"""The page of costs: what was provisioned, what was billed, for what, and what it saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentspec.settings import PoolSettings
from agentspec.store.board import Look
from agentspec.store.cost_json import per_million
from agentspec.store.cost_report import Spend, break_even, spends
from agentspec.store.counterfactual import Counterfactual, chosen, counterfactual
from agentspec.store.glance import Billed, Glance, glance
from agentspec.store.narrow import narrowed
from agentspec.store.pool import busy_nusd_per_us
from agentspec.store.prices import PriceError, dated
from agentspec.store.provision import Bill
from agentspec.store.savings import Savings, savings
from agentspec.store.series import series
from agentspec.store.usage import pruned
from agentspec.store.window import Window

from . import text
from .blocks import asked, label, money, number, share, where_told
from .context import Context
from .figures import cost_over_time
from .params import BadParameter
from .sheet import Block, Column, Field, Sheet
from .tiles import Tile
from .view import View

MOST_MODELS = 500
"""Models that the choice of a price offers; others can be asked for in the URL."""

_PARTS: tuple[str, ...] = ("Fresh prefill", "Cached input", "Decode", "Drafts", "Grammar")


def cost(look: Look, view: View, context: Context) -> Sheet:
    """The page. Money is told of whole backends: filters other than that of time are left aside."""
    # Up to now: what is provisioned later is not paid for yet.
    window = Window(view.window.since_ms, view.now_ms + 1)
    pools = context.pools
    found = look.ask(glance, pools, window)
    sql = look.take_sql()
    bare = replace(view, filters={})  # what money is told of is in no filter
    blocks = [_parts(found, pools, sql, bare), _billed(found.billed, bare, sql)]
    blocks.insert(0, where_told(look, "cost", "Cost", lambda: _over_time(look, view)))
    part = look.aside(narrowed, window)
    blocks.append(asked(look, _kinds(look.ask(spends, part, but=list(pools)), part, window, bare)))
    blocks.append(asked(look, _saved(look, context, part, window, bare)))
    blocks += _elsewhere(look, bare, found, part)
    notes = []
    if view.filters:
        notes.append("Only the first chart follows the filters: money is told of whole backends.")
    if found.unpriced:
        told = text.plural(found.unpriced, "request")
        notes.append(f"The cost of {told} isn't known, and is in no sum: no price held for them.")
    return Sheet(
        "Cost",
        "US dollars. A self-hosted backend with a pool costs what was provisioned, idle time "
        "included; others what was frozen in their rows.",
        tiles(found),
        notes,
        blocks,
        [_price_field(look, view)],
    )


def _over_time(look: Look, view: View) -> Block:
    told = look.ask(series, look.slice, view.chosen.bucket_ms)
    return replace(cost_over_time(told, view.chosen), rows_url=view.rows())


def tiles(found: Glance) -> list[Tile]:
    """The numbers at the top."""
    pools = sum(bill.total_nusd for bill in found.bills.values())
    idle = sum(bill.idle_nusd for bill in found.bills.values() if bill.idle_us is not None)
    priced = sum(b.requests - b.unpriced for b in found.billed)
    billed = text.usd(found.total_nusd - pools) if priced or not found.unpriced else "unknown"
    known = text.usd(found.total_nusd) if found.bills or billed != "unknown" else "unknown"
    return [
        Tile("Cost", known, "provisioned and billed"),
        Tile("Provisioned", text.usd(pools), text.plural(len(found.bills), "pool")),
        Tile("Idle", text.usd(idle), f"{text.share(idle / pools if pools else None)} of it"),
        Tile("Billed by request", billed, "at dated prices"),
        Tile("Unknown cost", text.exact(found.unpriced), "requests without a price"),
    ]


def _parts(
    found: Glance, pools: Mapping[str, PoolSettings], sql: tuple[str, ...], view: View
) -> Block:
    rows: list[tuple[Any, ...]] = []
    notes = []
    for name, bill in found.bills.items():
        rows += [(name, *row) for row in _of_bill(bill)]
        used = text.share(None if bill.utilisation is None else float(bill.utilisation))
        told = per_million(bill)
        notes.append(
            f"{name}: {text.plural(pools[name].gpus, 'GPU')} for "
            f"{bill.provisioned_ms / 3_600_000:,.2f} h, {used} busy; split by {bill.split}; a "
            f"million output tokens {text.usd(told['all_per_out'])} with idle time, "
            f"{text.usd(told['busy_per_out'])} without."
        )
    return Block(
        "pools",
        "Self-hosted backends",
        " ".join(notes) or "Provisioned by the hour.",
        [label("Backend", "backend"), label("Work", "work")]
        + [money("Cost", "cost_nusd"), share("Share", "share")],
        rows,
        sql=sql,
        links=[view.rows(backend=row[0]) for row in rows],
        empty=""
        if rows
        else "None has a price. Give it one under backends.NAME.pool in the settings: GPUs, "
        "dollars an hour.",
    )


def _of_bill(bill: Bill) -> list[tuple[str, int, float | None]]:
    parts: list[tuple[str, int]] = list(zip(_PARTS, bill.busy.values(), strict=True))
    if bill.idle_us is not None:
        parts.append(("Idle", bill.idle_nusd))
    parts.append(("All", bill.total_nusd))
    whole = bill.total_nusd
    return [(title, nusd, nusd / whole if whole else None) for title, nusd in parts]


def _billed(billed: list[Billed], view: View, sql: tuple[str, ...]) -> Block:
    return Block(
        "billed",
        "Billed by request",
        "Known cost of the backends without a pool; tokens are those of all of their requests.",
        [
            label("Backend", "backend"),
            number("Requests", "requests"),
            number("Of unknown cost", "unpriced"),
            number("In", "in_tok"),
            number("Cached", "cached_tok"),
            number("Out", "out_tok"),
            money("Known cost", "cost_nusd"),
        ],
        [
            (b.backend, b.requests, b.unpriced, b.in_tok, b.cached_tok, b.out_tok)
            + (None if b.unpriced == b.requests else b.cost_nusd,)
            for b in billed
        ],
        links=[view.rows(backend=b.backend) for b in billed],
        sql=sql,
        empty="" if billed else f"No other request in the {view.chosen.title}.",
    )


def _kinds(found: list[Spend], part: Window, window: Window, view: View) -> Block:
    rows = [
        (s.backend, s.fresh_nusd, s.cached_nusd, s.out_nusd, s.failed_nusd)
        + (s.total_nusd, _m(s), s.unknown)
        for s in found
        if s.unknown < s.requests
    ]
    return Block(
        "kinds",
        "Billed, by kind of token",
        "Of requests of known cost." + _newest(part, window),
        [
            label("Backend", "backend"),
            money("Fresh input", "fresh_nusd"),
            money("Cached input", "cached_nusd"),
            money("Output", "out_nusd"),
            money("Calls that failed before", "failed_nusd"),
            money("All", "total_nusd"),
            money("A million out", "nusd_per_m_out"),
            number("Of unknown cost", "unknown"),
        ],
        rows,
        links=[view.rows(backend=row[0]) for row in rows],
        empty="" if rows else "No request of known cost in this range.",
    )


def _m(spend: Spend) -> int | None:
    told = spend.per_million_out()
    return None if told is None else round(told)


def _saved(look: Look, context: Context, part: Window, window: Window, view: View) -> Block:
    # Of time whose rows are gone it isn't known whether the engine speculated.
    gone = look.aside(pruned, part) is not None
    prices = {name: None if gone else busy_nusd_per_us(p) for name, p in context.pools.items()}
    found = look.ask(savings, part, prices, context.control_window_ms)
    rows = [_saving(name, one) for name, one in found.items()]
    signed = Column("Saved", "saved_nusd", text.usd)
    return Block(
        "savings",
        "Saved by speculation",
        "Time to generate a token while speculating against the engine's own control windows, with "
        "its 95 % interval; negative: speculation costs." + _newest(part, window),
        [
            label("Backend", "backend"),
            share("Time saved", "share"),
            share("From", "share_low"),
            share("To", "share_high"),
            signed,
            money("From", "saved_low_nusd"),
            money("To", "saved_high_nusd"),
            label("Not known because", "unknown"),
        ],
        rows,
        links=[view.rows(backend=row[0]) for row in rows],
        empty="" if rows else "No self-hosted backend has a price (backends.NAME.pool).",
    )


def _saving(name: str, one: Savings) -> tuple[Any, ...]:
    """From the lower end of the interval to the upper one, in money as in time."""
    low, high = sorted((one.low_nusd or 0, one.high_nusd or 0))
    known = one.saved_nusd is not None
    ends = (low, high) if known else (None, None)
    return (name, one.share, one.low, one.high, one.saved_nusd, *ends, one.unknown or None)


def _price_field(look: Look, view: View) -> Field:
    models = sorted({one.model for one in look.aside(dated)})
    told = view.params.get("at", "")
    offered = models[:MOST_MODELS]
    offered += [told] if told and told not in offered else []
    options = [("", "choose a model"), *((model, model) for model in offered)]
    return Field("at", "Compare with the price of", told, options)


def _elsewhere(look: Look, view: View, found: Glance, part: Window) -> list[Block]:
    """What the pools' tokens would have cost at the price of a commercial model."""
    wanted = view.params.get("at", "")
    rows = []
    if wanted:
        try:
            tiers = look.ask(chosen, wanted, part.until_ms)
        except PriceError as error:
            raise BadParameter(f"'at': {error}") from error
        for name, bill in found.bills.items():
            other = look.ask(counterfactual, part, name, tiers, bill.total_nusd)
            rows.append(_other(name, bill, other))
    whole = part.since_ms <= view.window.since_ms
    empty = "" if rows else "No self-hosted backend has a price to compare."
    if not wanted:
        empty = "Choose a model above: its price, held against the tokens counted here."
    elif not whole:
        empty = "The range has too many requests for it: choose a shorter one."
    block = Block(
        "elsewhere",
        "The same tokens elsewhere",
        "Another model has another tokenizer and writes other answers, so its bill would differ; "
        "negative: the vendor would have been cheaper.",
        [
            label("Backend", "backend"),
            label("At the price of", "model"),
            money("Cost here", "here_nusd"),
            money("Cost there", "there_nusd"),
            money("Saved", "saved_nusd"),
            Column("Breaks even when busy", "break_even_share", _reachable),
            label("Tokenizer", "tokenizer"),
        ],
        rows if whole else [],
        links=[view.rows(backend=row[0]) for row in rows] if whole else [],
        empty=empty,
    )
    return [asked(look, block)]


def _reachable(share: float | None) -> str:
    """A utilisation; above 1 none is enough."""
    return "never" if share is not None and share > 1 else text.share(share)


def _other(name: str, bill: Bill, other: Counterfactual) -> tuple[Any, ...]:
    total = other.cost.total_nusd
    even = break_even(bill, total)
    told = "another one" if other.tokenizer_differs else "the same"
    spent = bill.total_nusd
    at = None if even is None else float(even)
    return (name, other.model, spent, total, other.saved_nusd, at, told)


def _newest(part: Window, window: Window) -> str:
    if part.since_ms <= window.since_ms:
        return ""
    return f" Read from single rows, so only of those since {text.full_time(part.since_ms)}."
