"""``bench start``: a fresh engine process, to ready and to its first token, and its memory.

``bench pair``: two engines at once, each one's decode speed over that of one alone.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import processes, report
from .stats import spread

START_COLUMNS = ["what", "ready_s", "first_token_s", "rss_mib", "peak_mib", "n"]
PAIR_COLUMNS = ["what", "tok_s", "share", "n"]


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the process's start; memory after the first answer, in MiB.

    ready_s: its health check answers. first_token_s: the first token of a request that was sent as
    soon as it did.
    """

    ready_s: float
    first_token_s: float
    rss_mib: float
    peak_mib: float


def start(runs: int, model: str, config: str | None) -> dict[str, Any]:
    """The whole of ``bench start``. Raises ``ProcessFailed`` where no engine comes up."""
    more = [] if config is None else ["--config", config]
    measured = []
    for number in range(runs):
        measured.append(_start(model, more))
        report.progress(f"start {number + 1}/{runs}: {measured[-1]}")
    columns = {name: [getattr(one, name) for one in measured] for name in Start.__slots__}
    medians = {name: statistics.median(values) for name, values in columns.items()}
    spreads = {name: spread(values) for name, values in columns.items()}
    row = {"what": "engine process", **medians, "n": runs, "spread": spreads}
    return report.build([row], runs=[asdict(one) for one in measured])


def _start(model: str, more: Seq[str]) -> Start:
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    with TemporaryDirectory(prefix="agentspec-bench-") as folder:
        started_s = time.perf_counter()
        command = ["engine", "serve", "--port", str(port), "--data-dir", folder, *more]
        with processes.agentspec(command, folder) as server:
            with processes.wait_http(f"{url}/health", server, every_s=0.02):
                ready_s = time.perf_counter() - started_s
            _first_token(url, model)
            first_s = time.perf_counter() - started_s
            return Start(ready_s, first_s, *memory_mib(server.pid))


def _first_token(url: str, model: str) -> None:
    """Ask for a stream and read it up to the first text in it."""
    body = {
        "model": model,
        "stream": True,
        "max_tokens": 8,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if re.search(rb'"content":\s*"[^"]', line):
                return
    raise processes.ProcessFailed("the engine's answer held no text")


def memory_mib(process: int) -> tuple[float, float]:
    """Resident memory of a process now, and the most it ever had (Linux /proc)."""
    text = Path(f"/proc/{process}/status").read_text()
    found = {name: int(kib) for name, kib in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text)}
    return found["VmRSS"] / 1024, found["VmHWM"] / 1024


def pair(runs: int, threads: int, config: str | None) -> dict[str, Any]:
    """The whole of ``bench pair``: processes of ``bench engine``, plain chat answers."""
    options = [
        *("bench", "engine", "--engines", "agentspec", "--modes", "plain", "--workloads", "chat"),
        *("--n", str(runs), "--threads", str(threads)),
        *([] if config is None else ["--config", config]),
    ]
    alone = list(_speeds(options, 1))
    both = list(_speeds(options, 2))
    rows = [{"what": "one engine", "tok_s": alone[0], "share": 1.0, "n": runs}]
    for number, rate in enumerate(both, start=1):
        what = f"engine {number} of two at once"
        rows.append({"what": what, "tok_s": rate, "share": rate / alone[0], "n": runs})
    return report.build(rows, threads=threads)


def _speeds(options: Seq[str], count: int) -> Iterator[float]:
    """Decode speeds of ``count`` processes that run at the same time."""
    with TemporaryDirectory(prefix="agentspec-bench-") as folder:
        files = [Path(folder) / f"{i}.json" for i in range(count)]
        base = [sys.executable, "-m", "agentspec", *options]
        running = [subprocess.Popen([*base, "--json", str(f)], stdout=-3) for f in files]
        for process in running:
            if process.wait():
                raise processes.ProcessFailed(f"bench engine ended with {process.returncode}")
        for file in files:
            rate = json.loads(file.read_text())["results"][0]["tok_s"]
            if rate is None:
                raise processes.ProcessFailed("every answer ran into a loop")
            yield rate
