"""Made-up requests of a coding team, many of them: rows and, from the same rows, the rollups.

Rows come in the order of time, a fixed number a day, so that what is measured on them depends on
their number only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentspec.store.record import RequestRecord
from agentspec.store.rows import to_row

MODELS = ("smollm2-135m-instruct", "qwen3-coder-30b", "claude-sonnet")
BACKENDS = {MODELS[0]: "engine", MODELS[1]: "vllm", MODELS[2]: "paid"}
WORKLOADS = ("chat", "code", "edit", "json", "tool")
CLIENTS = ("codex", "claude-code", "opencode", "cline")
KEYS = 20
SESSION_REQUESTS = 50
DAYS = 30


POOL_ROWS = 10_000
"""So many different requests are made up; what comes after repeats them at other times, for other
sessions, keys and clients."""


@dataclass(frozen=True, slots=True)
class Load:
    """``count`` requests spread evenly over the ``span_ms`` before ``until_ms``."""

    count: int
    until_ms: int
    span_ms: int = DAYS * 86_400_000
    seed: int = 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """All of them as rows of the table, oldest first."""
        rng = random.Random(self.seed)
        pool = [to_row(record(rng, n, 0)) for n in range(min(self.count, POOL_ROWS))]
        for number in range(self.count):
            ts_ms = self.until_ms - self.span_ms + self.span_ms * number // self.count
            session = number // SESSION_REQUESTS
            row = dict(pool[number % POOL_ROWS])
            row["id"] = f"{ts_ms:012x}-7000-8000-{number:016x}"
            row["ts_ms"] = ts_ms
            row["session_id"] = f"session-{session:010d}"
            row["key_id"] = f"key-{session % KEYS:03d}"
            row["client"] = CLIENTS[session % KEYS % len(CLIENTS)]
            yield row


def record(rng: random.Random, number: int, ts_ms: int) -> RequestRecord:
    """One request, its numbers consistent with each other."""
    session = number // SESSION_REQUESTS
    model = MODELS[session % 3]
    status = "ok" if rng.random() < 0.96 else rng.choice(("error", "cancelled", "lost"))
    in_tok = int(rng.lognormvariate(9, 1))
    hist = [rng.randrange(1, 40) for _ in range(6)]
    steps, accepted = sum(hist), sum(j * n for j, n in enumerate(hist))
    ttft_ms = rng.lognormvariate(6, 0.7)
    decode_ms = rng.lognormvariate(8, 0.8)
    fresh, cached, out = rng.randrange(10**6), rng.randrange(10**6), rng.randrange(10**6)
    return RequestRecord(
        id=f"{ts_ms:012x}-7000-8000-{number:016x}",
        ts_ms=ts_ms,
        status=status,
        http_status={"ok": 200, "error": 502, "cancelled": 499, "lost": None}[status],
        finish_reason="tool_calls" if status == "ok" else None,
        model=model,
        upstream_model=model,
        backend=BACKENDS[model],
        backend_kind="engine",
        session_id=f"session-{session:010d}",
        session_source="header",
        client=CLIENTS[session % len(CLIENTS)],
        key_id=f"key-{session % KEYS:03d}",
        stream=True,
        n_messages=12,
        n_tools=9,
        workload=WORKLOADS[rng.randrange(5)],
        in_tok=in_tok,
        cached_tok=int(in_tok * 0.9),
        out_tok=steps + accepted,
        spec_arm="on" if rng.random() < 0.98 else "off",
        spec_steps=steps,
        spec_drafted=accepted + rng.randrange(200),
        spec_accepted=accepted,
        spec_sources={"dspark": {"drafted": accepted + 50, "accepted": accepted}},
        spec_hist=hist,
        busy_prefill_us=rng.randrange(10**6),
        busy_decode_us=rng.randrange(10**7),
        queue_ms=rng.random() * 20,
        ttft_ms=ttft_ms,
        tpot_ms=decode_ms / (steps + accepted),
        e2e_ms=None if status == "lost" else ttft_ms + decode_ms,
        gateway_ms=rng.random() * 2,
        tool_calls=1,
        tool_calls_valid=1,
        cost_nusd=fresh + cached + out,
        cost_fresh_nusd=fresh,
        cost_cached_nusd=cached,
        cost_out_nusd=out,
        cost_formula=1,
        decision=_decision(BACKENDS[model], in_tok, ttft_ms),
    )


def _decision(chosen: str, in_tok: int, ttft_ms: float) -> dict[str, object]:
    """As long as those of a policy that weighs three backends."""
    weighed = [
        {
            "backend": backend,
            "eligible": True,
            "reason": "predicted from 128 requests of the class",
            "score": ttft_ms * (place + 1) / 7,
            "chance": 0.95 if backend == chosen else 0.025,
            "predicted": {
                "ttft_s": ttft_ms / 1000,
                "token_s": ttft_ms / 9000,
                "out_tok": 217.25,
                "cost_nusd": in_tok * 300 * (place + 1),
            },
        }
        for place, backend in enumerate(BACKENDS.values())
    ]
    return {
        "policy": "measured",
        "chosen": chosen,
        "reason": "cheapest in time",
        "propensity": 0.95,
        "candidates": weighed,
        "attempts": [{"backend": chosen}],
        "task": {"schema": "", "guess_tok": in_tok},
        "load": 3.0,
    }
