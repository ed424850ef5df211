"""One real ``agentspec serve`` for these tests: supervisor, engine with the real model, ledger."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
import sqlalchemy as sa

from agentspec.bench.kill import wait_ready

MODEL = "smollm2-135m-instruct"


@dataclass
class Served:
    """A running server. url: http://127.0.0.1:PORT."""

    url: str
    folder: Path
    process: subprocess.Popen

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=300)

    def row(self, session: str, limit_s: float = 30) -> dict:
        """The one ledger row of a session, once the writer has drained it."""
        engine = sa.create_engine(f"sqlite:///{self.folder / 'agentspec.db'}")
        query = sa.text("select * from request where session_id = :session")
        until = time.monotonic() + limit_s
        try:
            while time.monotonic() < until:
                with engine.connect() as connection:
                    rows = connection.execute(query, {"session": session}).mappings().all()
                if rows:
                    assert len(rows) == 1
                    return dict(rows[0])
                time.sleep(0.05)
        finally:
            engine.dispose()
        raise AssertionError(f"no row for session {session} within {limit_s} s")


@pytest.fixture(scope="session")
def served(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import asyncio

    folder = tmp_path_factory.mktemp("serve")
    port = _free_port()
    config = folder / "serve.toml"
    config.write_text("[engine]\ncontrol_share = 0\n")  # these tests want to see drafts
    log = (folder / "serve.log").open("wb")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "agentspec", "serve"),
            *("--port", str(port), "--data-dir", str(folder), "--config", str(config)),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        asyncio.run(wait_ready(url, 180))
        yield Served(url, folder, process)
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def headers() -> Callable[[str], dict[str, str]]:
    return lambda session: {"x-session-id": session}
