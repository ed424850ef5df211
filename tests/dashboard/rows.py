"""Rows of a day of agents' work, with everything in them that the pages tell."""

from __future__ import annotations

import random
from typing import Any

from agentspec.store.database import connect
from agentspec.store.notes import write_notes
from agentspec.store.record import CallRecord, CallsRecord, RequestRecord
from tests.store.ledger import EPOCH_MS, insert

SOURCES = {"tool": ("forced", "dspark"), "edit": ("suffix", "dspark"), "chat": ("dspark",)}
RATES = {"forced": 0.95, "suffix": 0.8, "dspark": 0.62}
TOOLS = ("read_file", "edit_file", "run_tests")


def agents_day(count: int, seed: int = 1) -> tuple[list[RequestRecord], list[CallsRecord]]:
    """``count`` requests of the 20 hours before ``EPOCH_MS``, in sessions, and their calls."""
    rng = random.Random(seed)
    records, notes = [], []
    for number in range(count):
        session = number % max(1, count // 20)
        at_ms = EPOCH_MS - 72_000_000 + session * 400_000 + (number // 20) * 9_000
        record = _request(rng, number, min(at_ms, EPOCH_MS - 2), session)
        records.append(record)
        if record.tool_calls:
            calls = [
                CallRecord(rng.choice(TOOLS), valid=i < record.tool_calls_valid, repaired=i == 0)
                for i in range(record.tool_calls)
            ]
            notes.append(CallsRecord(record.id, record.ts_ms, calls))
    return records, notes


def store(url: str, records: list[RequestRecord], notes: list[CallsRecord]) -> None:
    """Put them into a ledger."""
    insert(url, records)
    engine = connect(url)
    with engine.begin() as connection:
        write_notes(connection, list(notes))
    engine.dispose()


def _request(rng: random.Random, number: int, ts_ms: int, session: int) -> RequestRecord:
    workload = rng.choice(["tool", "edit", "chat"])
    own = rng.random() < 0.75
    arm = rng.choices(["on", "off", "mixed"], [7, 2, 1])[0] if own else None
    sources, hist = _drafts(rng, workload) if own and arm != "off" else ({}, [])
    steps, accepted = sum(hist), sum(j * n for j, n in enumerate(hist))
    status = rng.choices(["ok", "error", "cancelled", "lost"], [92, 4, 3, 1])[0]
    out_tok = max(2, steps + accepted or rng.randrange(20, 300))
    ttft = rng.lognormvariate(5.5, 0.7)
    tpot = rng.lognormvariate(2.6 if arm == "on" else 3.2, 0.25)
    in_tok = rng.randrange(500, 30_000)
    cached = rng.randrange(in_tok) if session % 3 else 0
    calls = rng.randrange(1, 3) if workload == "tool" and status == "ok" else 0
    costs = [None] * 3 if own else [rng.randrange(10**6, 10**8) for _ in range(3)]
    return RequestRecord(
        id=f"01890000-0000-7000-8000-{number:012d}",
        ts_ms=ts_ms,
        status=status,
        http_status={"ok": 200, "error": 502, "cancelled": 499, "lost": None}[status],
        error_code=rng.choice(["upstream_timeout", "constraint_not_met"])
        if status == "error"
        else None,
        model="smollm2-135m-instruct" if own else "gpt-9",
        upstream_model="SmolLM2-135M" if own else "gpt-9-mini",
        backend="engine" if own else "paid",
        backend_kind="engine" if own else "litellm",
        session_id=f"session-{session:04d}",
        client=["codex", "claude-code", "aider"][session % 3],
        key_id=f"key-{session % 2}",
        workload=workload,
        response_format="json_schema" if workload == "tool" else "",
        in_tok=in_tok,
        cached_tok=cached,
        out_tok=out_tok,
        forced_tok=rng.randrange(out_tok) if workload == "tool" else 0,
        spec_window=arm,
        spec_steps=steps,
        spec_drafted=sum(s["drafted"] for name, s in sources.items() if name != "forced"),
        spec_accepted=accepted,
        spec_sources=sources,
        spec_hist=hist,
        exact=own,
        busy_prefill_us=rng.randrange(10**5) if own else 0,
        busy_decode_us=out_tok * round(1000 * tpot) if own else 0,
        busy_grammar_us=rng.randrange(1, 20_000) if workload == "tool" else 0,
        grammar_cold=rng.random() < 0.1 if workload == "tool" else None,
        ttft_ms=None if status == "lost" else ttft,
        tpot_ms=None if status == "lost" else tpot,
        e2e_ms=None if status == "lost" else ttft + tpot * (out_tok - 1),
        queue_ms=rng.random() * 20 if own else None,
        tool_calls=calls,
        tool_calls_valid=calls - (calls > 1 and rng.random() < 0.1),
        tool_calls_repaired=int(calls > 0),
        redecoded_tok=rng.randrange(3) if workload == "tool" else 0,
        tools_saved_chars=out_tok if own else None,
        cost_nusd=None if own else sum(c or 0 for c in costs),
        cost_fresh_nusd=costs[0],
        cost_cached_nusd=costs[1],
        cost_out_nusd=costs[2],
        decision=_decision(rng, "engine" if own else "paid"),
    )


def _drafts(rng: random.Random, workload: str) -> tuple[dict[str, dict[str, int]], list[int]]:
    """By source, and a histogram that holds what the sources other than "forced" had accepted."""
    sources, accepted = {}, 0
    for name in SOURCES[workload]:
        drafted = rng.randrange(20, 200)
        rate = RATES[name] * (0.55 if workload == "chat" else 1)
        kept = sum(rng.random() < rate for _ in range(drafted))
        sources[name] = {"drafted": drafted, "accepted": kept}
        accepted += kept if name != "forced" else 0
    hist = [rng.randrange(5, 20)] + [0] * 7
    while accepted:
        j = min(accepted, rng.randrange(1, 8))
        hist[j] += 1
        accepted -= j
    return sources, hist


def _decision(rng: random.Random, chosen: str) -> dict[str, Any]:
    failed = rng.random() < 0.05
    attempts: list[dict[str, str]] = [{"backend": chosen}]
    if failed:
        attempts.insert(0, {"backend": "spare", "error": "upstream_unreachable"})
    return {
        "policy": "learned",
        "chosen": chosen,
        "reason": rng.choice(["the least expected loss", "another than the best, to learn"]),
        "propensity": rng.choice([1.0, 0.95, 0.05]),
        "candidates": [
            {
                "backend": name,
                "eligible": True,
                "reason": "can do it",
                "chance": 0.5,
                "score": 0.25,
                "predicted": {"ttft_ms": 120.0, "tpot_ms": 9.5, "cost_nusd": 12_000.0},
            }
            for name in ("engine", "paid")
        ],
        "attempts": attempts,
        "task": {"kind": "tool", "client": "codex", "guess_tok": 1200},
    }
