"""Recorded traffic of coding agents: the shape of each call, without any text.

A CSV with the columns ``trace_id, chain, t_s, in_tokens, out_tokens, lcp_cached_tokens,
think_time_s, output_types`` and others, which are not looked at. A chain is a conversation; its
calls follow each other, each after the one before has ended and some time to think.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLIENT = "claude-code"


@dataclass(frozen=True, slots=True)
class Call:
    """Tokens of one call. shared_tok: of its prompt, those that the call before ended with too.

    think_s: from the end of the call before. kind: the kind of work. The traffic has no requests,
    so it is told by the answer: one without a tool call counts as chat, a short one as a title.
    """

    in_tok: int
    out_tok: int
    shared_tok: int
    think_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class Chain:
    """One conversation. start_s: after its trace's start."""

    id: str
    start_s: float
    calls: tuple[Call, ...]


def read(path: str | Path) -> list[list[Chain]]:
    """The chains of each trace, in the file's order."""
    opened = gzip.open if str(path).endswith(".gz") else open
    traces: dict[str, dict[str, tuple[float, list[Call]]]] = {}
    with opened(path, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            chains = traces.setdefault(row["trace_id"], {})
            _, calls = chains.setdefault(row["chain"], (float(row["t_s"]), []))
            calls.append(_call(row))
    return [
        [Chain(f"{t}/{c}", start_s, tuple(calls)) for c, (start_s, calls) in chains.items()]
        for t, chains in traces.items()
    ]


def _call(row: dict[str, str]) -> Call:
    in_tok, out_tok = max(1, int(row["in_tokens"])), max(1, int(row["out_tokens"]))
    kind = "tool" if "tool_use" in row["output_types"] else "chat"
    if kind == "chat" and in_tok < 4000 and out_tok < 100:
        kind = "title"
    shared = min(int(row["lcp_cached_tokens"]), in_tok)
    return Call(in_tok, out_tok, shared, min(float(row["think_time_s"] or 0), 120.0), kind)


def arrivals(
    traces: list[list[Chain]], every_s: float, seed: int, most_calls: int
) -> Iterator[tuple[float, Chain]]:
    """(start, chain) of traces that begin at random, one in ``every_s`` on the average, in a random
    order, again and again under other names; until they hold about ``most_calls`` calls."""
    rng = random.Random(seed)
    at_s, calls, turn = 0.0, 0, 0
    while calls < most_calls:
        turn += 1
        for trace in rng.sample(traces, len(traces)):
            at_s += rng.expovariate(1.0 / every_s)
            for chain in trace:
                calls += len(chain.calls)
                yield (
                    at_s + min(chain.start_s, 1800.0),
                    Chain(f"{turn}:{chain.id}", 0.0, chain.calls),
                )
            if calls >= most_calls:
                return
