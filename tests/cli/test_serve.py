"""``agentspec gateway serve`` as a user starts it: workers, writer, SQL, kills, the end.

The backend is the stand-in of tests/gateway; everything else is real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from tests.gateway.upstream import running_upstream

CONFIG = """
[server]
workers = 2
[backends.up]
kind = "openai"
url = "{url}"
[models.good]
backends = ["up"]
[models.waits]
backends = ["up"]
"""


def body(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def ask_anew(url: str) -> httpx.Response:
    """One request on a connection of its own: such spread over the workers."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        return await http.post(url, json=body("good"))


def rows(data: Path) -> dict[str, str]:
    """Status by request id, as the ledger's database has it."""
    with contextlib.closing(sqlite3.connect(data / "agentspec.db")) as database:
        return dict(database.execute("select id, status from request"))


def workers(parent: int) -> list[int]:
    """Pids of the supervisor's gateway workers."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if b"worker" in words and int(stat[1]) == parent:
                found.append(int(folder.name))
    return found


@contextlib.asynccontextmanager
async def serving(config: Path, data: Path) -> AsyncIterator[tuple[str, int]]:
    """Start it, wait for the line that says it is ready; SIGTERM must end it with status 0."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentspec", "gateway", "serve", "--port", "0"),
        *("--config", str(config), "--data-dir", str(data)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.fullmatch(r"ready on (http://127\.0\.0\.1:\d+) after \d+\.\d s\n", line)
        assert found, line
        yield found.group(1), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_serve_adds_up_survives_its_workers_and_loses_no_row(tmp_path):
    data = tmp_path / "data"
    config = tmp_path / "agentspec.toml"
    async with running_upstream() as up, httpx.AsyncClient(trust_env=False, timeout=30) as http:
        config.write_text(CONFIG.format(url=up.url))
        async with serving(config, data) as (url, pid):
            chat = f"{url}/v1/chat/completions"
            finished = [await ask_anew(chat) for _ in range(6)]
            assert all("data: [DONE]" in answer.text for answer in finished)
            metrics = (await http.get(f"{url}/metrics")).text
            assert re.findall(r"^agentspec_requests_total\{.*\} (\S+)$", metrics, re.M) == ["6.0"]
            torn = asyncio.create_task(http.post(chat, json=body("waits")))
            await until(lambda: len(up.seen) == 7)
            for worker in workers(pid):
                os.kill(worker, signal.SIGKILL)
            with pytest.raises(httpx.HTTPError):
                await torn
            finished.append(await ask_anew(chat))
            page = (await http.get(f"{url}/dashboard")).status_code
            # Counters never fall: what killed workers counted stays in the sum.
            metrics = (await http.get(f"{url}/metrics")).text
            assert re.findall(r"^agentspec_requests_total\{.*\} (\S+)$", metrics, re.M) == ["7.0"]
            ids = {answer.headers["x-request-id"] for answer in finished}
            await until(lambda: len(rows(data)) == 8)
        found = rows(data)
    assert page == 200
    assert {found[name] for name in ids} == {"ok"}
    assert [status for name, status in found.items() if name not in ids] == ["lost"]
