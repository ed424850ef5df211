"""Kills processes of a running ``agentspec serve`` at random and checks what clients and SQL saw.

Each round: 16 streams run, one process (engine, gateway worker or ledger writer) gets SIGKILL while
some of them still do (after a drawn number has ended), every stream is read to its end. Then the
ledger must hold one row, and no more, for each stream that the client saw end: "ok" where it saw
``[DONE]``. Where it saw a break the row is not "ok", unless the gateway died between the row and
the last bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa

VICTIMS = {
    "engine": ("engine", "serve"),
    "gateway": ("gateway", "worker"),
    "writer": ("db", "writer"),
}
COLUMNS = [
    "victim",
    "running",
    "finished",
    "broken",
    "clean_but_torn",
    "ready_again_s",
    "rows",
    "wrong",
]
PROMPT = "Count upwards from one and say something about each number."


@dataclass(slots=True)
class Round:
    """One kill. running: streams that had not ended then; finished/broken: what the clients saw;
    rows: what the ledger says of them."""

    victim: str
    running: int = 0
    finished: int = 0
    broken: int = 0
    clean_but_torn: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    ready_again_s: float = 0.0


def children(parent: int) -> dict[int, list[str]]:
    """Command lines of all living descendants of a process, by pid (Linux /proc)."""
    lines: dict[int, tuple[int, list[str]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            args = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if stat[0] != "Z":
                lines[int(folder.name)] = (int(stat[1]), args)
    found, layer = {}, {parent}
    while layer:
        layer = {pid for pid, (ppid, _) in lines.items() if ppid in layer}
        found |= {pid: lines[pid][1] for pid in layer}
    return found


def victims(parent: int, kind: str) -> list[int]:
    """Pids below the supervisor whose command line carries the words of ``kind``."""
    words = VICTIMS[kind]
    return [
        pid
        for pid, args in children(parent).items()
        if any(tuple(args[i : i + 2]) == words for i in range(len(args)))
    ]


async def wait_ready(url: str, limit_s: float) -> float:
    """Seconds until ``/ready`` answers 200. Raises ``TimeoutError`` after ``limit_s``."""
    began = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while time.monotonic() - began < limit_s:
            with contextlib.suppress(TimeoutError, aiohttp.ClientError):
                async with session.get(f"{url}/ready") as response:
                    if response.status == 200:
                        return time.monotonic() - began
            await asyncio.sleep(0.1)
    raise TimeoutError(f"{url}/ready did not answer 200 within {limit_s} s")


async def _stream(session: aiohttp.ClientSession, url: str, model: str, name: str) -> str:
    """Run one stream: "finished" ([DONE] seen), "broken" (error or cut) or "torn" (neither)."""
    body = {
        "model": model,
        "stream": True,
        "max_tokens": random.randint(4, 120),
        "messages": [{"role": "user", "content": f"{PROMPT} ({name})"}],
    }
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=body, headers={"x-session-id": name}
        ) as response:
            raw = b""
            async for piece in response.content.iter_any():
                raw += piece
    except (TimeoutError, aiohttp.ClientError, OSError):
        return "broken"
    if response.status != 200 or b'"error"' in raw:
        return "broken"
    return "finished" if b"data: [DONE]" in raw else "torn"


async def _until(tasks: Seq[asyncio.Task[str]], ended: int) -> None:
    """Wait until so many of them are done."""
    running = set(tasks)
    while len(tasks) - len(running) < ended:
        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)


async def _round(url: str, pid: int, model: str, victim: str, streams: int, chance: random.Random):
    result = Round(victim)
    names = [f"kill-{uuid.uuid4().hex[:12]}" for _ in range(streams)]
    timeout = aiohttp.ClientTimeout(total=180)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        tasks = [asyncio.create_task(_stream(session, url, model, name)) for name in names]
        await _until(tasks, chance.randrange(streams))
        await asyncio.sleep(chance.uniform(0, 0.1))
        result.running = sum(not task.done() for task in tasks)
        for target in victims(pid, victim):
            os.kill(target, signal.SIGKILL)
        outcomes = dict(zip(names, await asyncio.gather(*tasks), strict=True))
    counts = Counter(outcomes.values())
    result.finished, result.broken = counts["finished"], counts["broken"]
    result.clean_but_torn = counts["torn"]
    result.ready_again_s = round(await wait_ready(url, 120), 2)
    return result, outcomes


def _check(database: str, outcomes: dict[str, str], result: Round, limit_s: float = 20) -> None:
    """Compare the ledger with what the clients saw, once every row has had time to be drained."""
    engine = sa.create_engine(database)
    query = sa.text("select session_id, status from request where session_id like 'kill-%'")
    until = time.monotonic() + limit_s
    while True:
        with engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(query) if row[0] in outcomes]
        have = Counter(name for name, _ in rows)
        missing = [n for n, seen in outcomes.items() if seen == "finished" and not have[n]]
        if not missing or time.monotonic() > until:
            break
        time.sleep(0.2)
    engine.dispose()
    result.rows = dict(Counter(status for _, status in rows))
    status = dict(rows)
    for name, seen in outcomes.items():
        if have[name] > 1:
            result.wrong.append(f"{name}: {have[name]} rows")
        elif seen == "finished" and status.get(name) != "ok":
            result.wrong.append(f"{name}: finished for the client, row {status.get(name)}")
        elif seen == "torn":
            result.wrong.append(f"{name}: the stream ended cleanly without [DONE]")


async def run(
    rounds: int,
    streams: int,
    model: str,
    seed: int,
    *,
    config: Path | None = None,
    database: str | None = None,
) -> list[dict[str, Any]]:
    """Start a server of its own in a scratch folder, kill ``rounds`` times, return the rounds.

    config: its settings; database: the URL of its ledger in them, else SQLite in that folder.
    """
    chance = random.Random(seed)
    results: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        port = 18000 + os.getpid() % 2000
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "agentspec", "serve", "--port", str(port)]
        log = (Path(folder) / "serve.log").open("wb")
        more = ["--data-dir", folder, *(["--config", str(config)] if config else [])]
        server = subprocess.Popen([*command, *more], stdout=log, stderr=subprocess.STDOUT)
        ledger = database or f"sqlite:///{folder}/agentspec.db"
        try:
            await wait_ready(url, 120)
            everything: list[tuple[Round, dict[str, str]]] = []
            for number in range(rounds):
                victim = list(VICTIMS)[number % len(VICTIMS)]
                result, outcomes = await _round(url, server.pid, model, victim, streams, chance)
                everything.append((result, outcomes))
                _check(ledger, outcomes, result)
                results.append(result)
                sys.stderr.write(f"kill {number + 1}/{rounds}: {result}\n")
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()
            log.close()
    return [asdict(result) for result in results]
