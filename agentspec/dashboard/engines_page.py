"""Engines: every backend as it answers now, and what the ledger says of it in a range of time."""

from __future__ import annotations

from collections.abc import Sequence

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.sample import sample

from . import text
from .blocks import asked, decimal, label, number, ratio, share
from .context import Context, EngineState
from .sheet import Block, Column, Sheet
from .tiles import Tile
from .view import View

_SUMS = ("requests", "decode_tok", "decode_us", "out_tok", "spec_steps", "spec_accepted")


def engines(look: Look, view: View, context: Context) -> Sheet:
    """The page."""
    states = context.engines()
    bad = [state for state in states if state.health not in ("ok", "not asked")]
    running = [state.running for state in states if state.running is not None]
    waiting = [state.waiting for state in states if state.waiting is not None]
    return Sheet(
        "Engines",
        "Health and load are asked for when this page is opened; the table below is the ledger's.",
        [
            Tile("Backends", text.exact(len(states)), "in the settings"),
            Tile("Not healthy", text.exact(len(bad)), "of those asked", alarm=bool(bad)),
            Tile("Running", text.count(sum(running) if running else None), "requests now"),
            Tile("Waiting", text.count(sum(waiting) if waiting else None), "requests now"),
        ],
        [f"Backend '{state.backend}': {state.health}." for state in bad],
        [_now(states), _told(look, view), _exactness(look, view)],
    )


def _now(told: Sequence[EngineState]) -> Block:
    return Block(
        "now",
        "Now",
        "Running and waiting requests as each server counts them, of all its clients. A vendor's "
        "servers are not asked.",
        [
            label("Backend", "backend"),
            label("Kind", "kind"),
            label("Address", "address"),
            label("Health", "health"),
            label("Version", "version"),
            Column("Running", "running", text.count),
            Column("Waiting", "waiting", text.count),
            share("K/V memory", "kv_used_share"),
            decimal("Tokens a step lately", "accepted_length"),
        ],
        [
            (
                s.backend,
                s.kind,
                s.address,
                s.health,
                s.version,
                s.running,
                s.waiting,
                s.kv_used,
                s.accepted_length,
            )
            for s in told
        ],
        empty="" if told else "This process was told of no backend.",
    )


def _told(look: Look, view: View) -> Block:
    found = look.ask(grouped, look.slice, _SUMS, by=("backend", "status"))
    sums: dict[str, dict[str, int]] = {}
    for (backend, status), one in found.items():
        into = sums.setdefault(backend, dict.fromkeys((*_SUMS, "failed"), 0))
        for name, value in one.items():
            into[name] += value
        into["failed"] += one["requests"] if status in ("error", "lost") else 0
    rows = [
        (
            backend,
            one["requests"],
            one["failed"],
            ratio(one["failed"], one["requests"]),
            ratio(1e6 * one["decode_tok"], one["decode_us"]),
            1 + one["spec_accepted"] / one["spec_steps"] if one["spec_steps"] else None,
            one["out_tok"],
        )
        for backend, one in sorted(sums.items())
    ]
    block = Block(
        "ledger",
        "By the ledger",
        f"Requests of the {view.chosen.title}. Speed: tokens after the first over the time after "
        "it, as one stream sees it.",
        [
            label("Backend", "backend"),
            number("Requests", "requests"),
            number("Failed or lost", "failed"),
            share("Failed share", "failed_share"),
            decimal("Tokens/s", "decode_tok_s"),
            decimal("Tokens a step", "accepted_length"),
            number("Out", "out_tok"),
        ],
        rows,
        links=[view.rows(backend=row[0]) for row in rows],
        empty="" if rows else f"No request in the {view.chosen.title}.",
    )
    return asked(look, block)


def _exactness(look: Look, view: View) -> Block:
    found = look.ask(sample, look.slice, ["backend", "backend_kind", "upstream_model", "exact"])
    counted: dict[tuple, list[int]] = {}
    for backend, kind, model, exact in found.rows:
        into = counted.setdefault((backend, kind, model), [0, 0])
        into[0] += 1
        into[1] += bool(exact)
    rows = [(*key, n, ratio(exact, n)) for key, (n, exact) in sorted(counted.items())]
    block = Block(
        "models",
        "Models they answered with",
        f"The names that upstreams reported, over {found.told}. Exact: a token's bits don't depend "
        "on what else ran, so speculation changes no greedy text.",
        [
            label("Backend", "backend"),
            label("Kind", "backend_kind"),
            label("Model", "upstream_model"),
            number("Requests", "requests"),
            share("Exact", "exact_share"),
        ],
        rows,
        empty="" if rows else f"No request in the {view.chosen.title}.",
    )
    return asked(look, block, view.rows())
