"""``agentspec`` itself, as processes: the gateway before the stand-in, or all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from agentspec.bench.processes import free_port

GATEWAY = """
data_dir = "{data}"
[backends.scripted]
kind = "openai"
url = "{url}"
idle_timeout_s = 5.0
[models.scripted]
backends = ["scripted"]
context_tokens = 65536
"""
KEY_ENV = "GATEWAY_KEY"
"""The variable that holds the key of a gateway which asks for one."""


@dataclass(frozen=True, slots=True)
class Served:
    """url: http://127.0.0.1:PORT. folder: its data."""

    url: str
    folder: Path

    def mark(self) -> int:
        """Where the ledger stands: rows so far."""
        return len(self.rows())

    def rows(self, since: int = 0) -> list[dict[str, Any]]:
        """The ledger's rows, oldest first, those before ``since`` left out."""
        engine = sa.create_engine(f"sqlite:///{self.folder / 'agentspec.db'}")
        query = sa.text("select * from request order by ts_ms, id")
        try:
            with engine.connect() as connection:
                return [dict(row) for row in connection.execute(query).mappings()][since:]
        finally:
            engine.dispose()

    def settled(self, since: int, least: int, limit_s: float = 10.0) -> list[dict[str, Any]]:
        """The rows once the writer has drained ``least`` of them."""
        until = time.monotonic() + limit_s
        while len(rows := self.rows(since)) < least and time.monotonic() < until:
            time.sleep(0.05)
        return rows


@contextmanager
def serving(
    folder: Path,
    *arguments: str,
    limit_s: float = 120,
    port: int | None = None,
    key: str | None = None,
) -> Iterator[Served]:
    """``agentspec ARGUMENTS`` with its data in ``folder``, once it is ready; key: in its
    environment as ``KEY_ENV``."""
    port = port or free_port()
    command = [sys.executable, "-m", "agentspec", *arguments]
    command += ["--port", str(port), "--data-dir", str(folder)]
    url = f"http://127.0.0.1:{port}"
    with (folder / "serve.log").open("wb") as log:
        env = os.environ | ({KEY_ENV: key} if key else {})
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        try:
            _wait(f"{url}/ready", process, folder / "serve.log", limit_s)
            yield Served(url, folder)
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def gateway_before(
    backend_url: str, folder: Path, port: int | None = None, key: str | None = None
) -> Iterator[Served]:
    """A gateway whose model ``scripted`` runs on the stand-in; key: it asks for this one."""
    config = folder / "gateway.toml"
    asks = f'[server]\napi_key_env = "{KEY_ENV}"\n' if key else ""
    config.write_text(GATEWAY.format(data=folder, url=backend_url) + asks)
    arguments = ("gateway", "serve", "--config", str(config))
    with serving(folder, *arguments, port=port, key=key) as served:
        yield served


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with closing(urllib.request.urlopen(url, timeout=5)):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"not ready within {limit_s} s: {log.read_text()[-3000:]}")


def accepted_length(rows: list[dict[str, Any]]) -> float | None:
    """Tokens a step of the engine wrote, the bonus token included; None where it took no step."""
    hists = [json.loads(row["spec_hist"] or "[]") for row in rows]
    steps = sum(sum(hist) for hist in hists)
    accepted = sum(j * count for hist in hists for j, count in enumerate(hist))
    return 1 + accepted / steps if steps else None


def cached_share(rows: list[dict[str, Any]]) -> float | None:
    """Of all prompt tokens, those that came from the prefix cache."""
    prompt = sum(row["in_tok"] for row in rows)
    return sum(row["cached_tok"] for row in rows) / prompt if prompt else None
