"""Routing: where requests went, why, with which chance, and what failed on the way."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.sample import Sample, sample

from . import text
from .blocks import asked, decimal, label, number, ratio, share
from .charts import Columns, Layer, stacked
from .context import Context
from .sheet import Block, Sheet
from .tiles import Tile
from .view import View

_PALETTE = ("c-out", "c-fresh", "c-accept", "c-ttft", "c-e2e", "c-cached", "c-failed")
CERTAIN = 0.999
"""A propensity from which on a choice counts as no exploration."""


def routing(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    places = look.ask(grouped, look.slice, ("requests",), by=("model", "backend", "status"))
    shares = asked(look, shares_block(places, view))
    found = look.ask(sample, look.slice, ["id", "decision", "attempts"])
    sql = look.take_sql()
    told = tally(row[1] for row in found.rows)
    behind = (_reasons(told, found), _chances(told, found), _tried(told, found))
    blocks = [shares, *(replace(b, sql=sql, rows_url=view.rows()) for b in behind)]
    weighed = sum(told.policies.values())
    chances = [chance for mine in told.chances.values() for chance in mine]
    learned = sum(chance < CERTAIN for chance in chances)
    failed = sum(count for (_, error), count in told.attempts.items() if error)
    return Sheet(
        "Routing",
        "A request's page explains its own decision; the command agentspec route explain ID "
        "says the same.",
        [
            Tile("Decisions", text.count(weighed), found.told),
            Tile(
                "By chance",
                text.share(ratio(learned, len(chances))),
                "chosen with a propensity under 1",
            ),
            Tile(
                "Least propensity",
                f"{min(chances):.3g}" if chances else text.UNKNOWN,
                "of the backend tried first",
            ),
            Tile(
                "Attempts failed",
                text.exact(failed),
                f"of {text.exact(sum(told.attempts.values()))}",
                alarm=failed > 0,
            ),
            Tile("Another backend", text.exact(told.moved), "requests that ended elsewhere"),
        ],
        blocks=blocks,
    )


@dataclass(slots=True)
class Tally:
    """policies: decisions by policy. reasons: (policy, chosen, reason) -> requests; chances:
    (policy, chosen) -> propensities. attempts: (backend, error or "") -> tries. moved: requests
    answered by another backend than the one tried first."""

    policies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    chances: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    moved: int = 0


def tally(decisions: Iterable[Mapping[str, Any]]) -> Tally:
    """What decisions, as the ledger keeps them, say; ones of another form as far as they go."""
    told = Tally()
    for one in decisions:
        if not one:
            continue
        policy, chosen = str(one.get("policy", "?")), str(one.get("chosen") or "")
        told.policies[policy] += 1
        told.reasons[policy, chosen, kind_of(str(one.get("reason", "?")))] += 1
        tries = [t for t in one.get("attempts") or () if isinstance(t, Mapping)]
        for attempt in tries:
            told.attempts[str(attempt.get("backend")), str(attempt.get("error") or "")] += 1
        first = str(tries[0].get("backend")) if tries else chosen
        told.moved += first != chosen
        chance = one.get("propensity")
        if isinstance(chance, int | float):
            told.chances[policy, first].append(float(chance))
    return told


def kind_of(reason: str) -> str:
    """A reason without the numbers in it, so that equal ones count together."""
    return re.sub(r"\d+(?:\.\d+)?", "#", reason)[:160]


def shares_block(places: Mapping[tuple, Mapping[str, int]], view: View) -> Block:
    """The share of each backend in each model's requests."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    models: Counter[str] = Counter()
    for (model, backend, status), one in places.items():
        sums[model, backend][0] += one["requests"]
        sums[model, backend][1] += one["requests"] if status in ("error", "lost") else 0
        models[model] += one["requests"]
    names = [model for model, _ in models.most_common(12)]
    backends = sorted({backend for _, backend in sums})
    layers = [
        Layer(
            backend or "(ran nowhere)",
            _PALETTE[i % len(_PALETTE)],
            [sums.get((m, backend), [0])[0] / models[m] for m in names],
        )
        for i, backend in enumerate(backends)
    ]
    rows = [
        (model, backend, count, count / models[model], failed)
        for (model, backend), (count, failed) in sorted(sums.items())
    ]
    title = "Backends by model"
    return Block(
        "shares",
        title,
        f"Share of each model's requests, {view.chosen.title}.",
        [
            label("Model", "model"),
            label("Backend", "backend"),
            number("Requests", "requests"),
            share("Share", "share"),
            number("Failed or lost", "failed"),
        ],
        rows,
        stacked(title, Columns(names, names), layers, text.share),
        layers,
        "" if rows else "No request in this range.",
        [view.rows(model=row[0], backend=row[1]) for row in rows],
    )


def _reasons(told: Tally, found: Sample) -> Block:
    rows = [(*key, count) for key, count in told.reasons.most_common(25)]
    return Block(
        "reasons",
        "Why",
        f"The most frequent reasons, numbers left out, over {found.told}.",
        [
            label("Policy", "policy"),
            label("Chosen", "chosen"),
            label("Because", "reason"),
            number("Requests", "requests"),
        ],
        rows,
        empty="" if rows else "No request of this range tells its decision.",
    )


def _chances(told: Tally, found: Sample) -> Block:
    rows = [
        (policy, first, len(mine), sum(c < CERTAIN for c in mine), min(mine), sum(mine) / len(mine))
        for (policy, first), mine in sorted(told.chances.items())
    ]
    return Block(
        "propensities",
        "Propensities",
        f"The probability of the backend that was tried first, over {found.told}: what a replay of "
        "another policy on this log weighs its requests by.",
        [
            label("Policy", "policy"),
            label("Tried first", "backend"),
            number("Decisions", "decisions"),
            number("By chance", "by_chance"),
            decimal("Least", "least"),
            decimal("Mean", "mean"),
        ],
        rows,
        empty="" if rows else "No decision of this range tells one.",
    )


def _tried(told: Tally, found: Sample) -> Block:
    backends = sorted({backend for backend, _ in told.attempts})
    rows = []
    for backend in backends:
        mine = {error: n for (name, error), n in told.attempts.items() if name == backend}
        whole = sum(mine.values())
        failed = whole - mine.get("", 0)
        worst = ", ".join(
            f"{error} {n:,}" for error, n in Counter(mine).most_common() if error
        )  # most frequent first
        rows.append((backend, whole, failed, ratio(failed, whole), worst or "none"))
    return Block(
        "attempts",
        "Attempts",
        f"Tries before a first byte came, over {found.told}.",
        [
            label("Backend", "backend"),
            number("Attempts", "attempts"),
            number("Failed", "failed"),
            share("Failed share", "failed_share"),
            label("Errors", "errors"),
        ],
        rows,
        empty="" if rows else "No request of this range was tried anywhere.",
    )
