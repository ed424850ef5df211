"""``agentspec bench gateway``: what the gateway adds between a client and its upstream.

A scripted stand-in upstream is measured directly and through a real ``agentspec gateway serve``
(ledger on) in alternating rounds. Added latency is the difference of the two medians (and 99th
percentiles): to the first byte of a stream, to the last byte otherwise.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import processes, report
from .client import Sample, Target, closed_loop
from .stats import percentile
from .upstream import MODEL, Script, stream_events, whole_answer

BODY_TOKENS = (1_000, 10_000)
ROUNDS = 3
COLUMNS = [
    *("target", "stream", "concurrency", "added_p50_ms", "added_p99_ms", "p50_ms", "p99_ms"),
    *("rps", "cpu_ms", "wrong", "n"),
]

_CONFIG = """
[server]
port = {port}

[backends.upstream]
kind = "openai"
url = "http://127.0.0.1:{upstream}/v1"

[models.{model}]
backends = ["upstream"]
context_tokens = 131072
"""


@dataclass(slots=True)
class Pool:
    """All samples of one target in one setting, over its rounds."""

    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0


def agent_body(tokens: int, stream: bool, seed: int) -> bytes:
    """A request shaped like an agent's: system text, tools, a few turns; about 4 bytes a token."""
    rng = random.Random(seed)
    words = [
        "def",
        "return",
        "import",
        "value",
        "index",
        "for",
        "self.items",
        "==",
        "config",
        "path",
    ]
    tools = [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"The {name} tool of the agent.",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
                    "required": ["path"],
                },
            },
        }
        for name in ("read_file", "write_file", "run_command", "search")
    ]

    def text(share: float) -> str:
        return " ".join(rng.choices(words, k=max(1, int(tokens * share * 0.75))))

    messages = [
        {"role": "system", "content": text(0.4)},
        {"role": "user", "content": text(0.1)},
        {"role": "assistant", "content": text(0.1)},
        {"role": "user", "content": text(0.4)},
    ]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": tools, "max_tokens": 64}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body).encode()


def _content(events: list[bytes]) -> list[str]:
    """The text of each event that carries some."""
    found = []
    for event in events:
        if event != b"[DONE]":
            for choice in json.loads(event).get("choices", []):
                if choice.get("delta", {}).get("content"):
                    found.append(choice["delta"]["content"])
    return found


def faithful(sample: Sample, stream: bool, script: Script) -> bool:
    """Whether the client saw the upstream's answer: same text, same chunks, a clean end."""
    if sample.error or sample.status != 200:
        return False
    if not stream:
        sent = json.loads(whole_answer(script))["choices"][0]["message"]
        return json.loads(sample.body)["choices"][0]["message"].items() >= sent.items()
    sent = b"".join(stream_events(script, usage=True)).split(b"\n")
    wanted = _content([line[6:] for line in sent if line.startswith(b"data: ")])
    events = sample.events
    return bool(events) and events[-1] == b"[DONE]" and _content(events) == wanted


@contextmanager
def running(script: Script) -> Iterator[tuple[Target, Target, int]]:
    """Start upstream and gateway: both targets, and the gateway's process id."""
    with TemporaryDirectory(prefix="agentspec-bench-") as folder:
        upstream, port = processes.free_port(), processes.free_port()
        config = Path(folder) / "config.toml"
        config.write_text(_CONFIG.format(port=port, upstream=upstream, model=MODEL))
        timing = [
            "--delay-ms",
            str(script.delay_s * 1000),
            "--chunk-ms",
            str(script.chunk_s * 1000),
        ]
        module = ["-m", "agentspec.bench.upstream", "--port", str(upstream)]
        command = ["gateway", "serve", "--config", str(config), "--data-dir", folder]
        with (
            processes.python([*module, *timing, "--chunks", str(script.chunks)], folder) as server,
            processes.wait_http(f"http://127.0.0.1:{upstream}/v1/models", server),
            processes.agentspec([*command, "--port", str(port)], folder) as gateway,
            processes.wait_http(f"http://127.0.0.1:{port}/ready", gateway),
        ):
            yield Target("direct", upstream), Target("agentspec", port), gateway.pid


def _measure(
    targets: tuple[Target, Target], pid: int, bodies: list[bytes], concurrency: int, count: int
) -> dict[str, Pool]:
    """Alternate between the targets, so that a drift of the machine meets both."""
    pools = {target.name: Pool() for target in targets}
    for target in targets:
        asyncio.run(closed_loop(target, bodies, concurrency, 2 * concurrency))
    for _ in range(ROUNDS):
        for target in targets:
            pool, cpu_s = pools[target.name], processes.cpu_seconds(pid)
            share = max(concurrency, count // ROUNDS)
            samples, seconds = asyncio.run(closed_loop(target, bodies, concurrency, share))
            pool.samples += samples
            pool.seconds += seconds
            pool.cpu_s += processes.cpu_seconds(pid) - cpu_s
    return pools


def _row(pool: Pool, direct: Pool, stream: bool, script: Script) -> dict[str, Any]:
    def quantile(of: Pool, percent: float) -> float:
        good = [s for s in of.samples if s.error is None and s.status == 200]
        if not good:
            return float("nan")
        return percentile([s.first_ms if stream else s.total_ms for s in good], percent)

    wrong = sum(not faithful(sample, stream, script) for sample in pool.samples)
    p50, p99 = quantile(pool, 50), quantile(pool, 99)
    return {
        "added_p50_ms": p50 - quantile(direct, 50),
        "added_p99_ms": p99 - quantile(direct, 99),
        "rps": len(pool.samples) / pool.seconds,
        "n": len(pool.samples),
        "p50_ms": p50,
        "p99_ms": p99,
        "wrong": wrong,
    }


def run(
    *, concurrency: list[int], count: int, streams: list[bool], script: Script, seed: int
) -> dict[str, Any]:
    """The whole bench: one row for each target, stream or not, and concurrency."""
    rows = []
    started_s = time.perf_counter()
    with running(script) as (direct, through, pid):
        for stream in streams:
            bodies = [agent_body(tokens, stream, seed) for tokens in BODY_TOKENS]
            for level in concurrency:
                pools = _measure((direct, through), pid, bodies, level, count)
                for name, pool in pools.items():
                    row = {"target": name, "stream": stream, "concurrency": level}
                    row |= _row(pool, pools["direct"], stream, script)
                    if name != "direct":
                        row["cpu_ms"] = pool.cpu_s * 1000 / len(pool.samples)
                    rows.append(row)
                report.progress(
                    f"gateway: stream={stream} concurrency={level}: "
                    f"added p50 {rows[-1]['added_p50_ms']:.2f} ms, {rows[-1]['rps']:.0f} rps "
                    f"({time.perf_counter() - started_s:.0f} s)"
                )
    upstream = {"name": "scripted stand-in", "delay_s": script.delay_s, "chunk_s": script.chunk_s}
    upstream |= {"chunks": script.chunks, "body_tokens": BODY_TOKENS}
    return report.build(rows, upstream=upstream)
