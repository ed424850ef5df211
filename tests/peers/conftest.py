"""Real servers: our engine, and llama-server as scripts/peers.sh builds it, on the same weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentspec.bench import processes
from agentspec.bench.llamacpp import LlamaCpp
from tests.house.source import ROOT

SERVER = ROOT / ".peers/bin/llama-server"


@pytest.fixture(scope="session")
def engine_port(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("engine")
    port = processes.free_port()
    config = folder / "engine.toml"
    config.write_text(
        f"data_dir = '{folder}'\n[engine]\ncontrol_share = 0\ncontext_tokens = 2048\n"
    )
    arguments = ["engine", "serve", "--port", str(port), "--config", str(config)]
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(processes.agentspec(arguments, folder))
        stack.enter_context(processes.wait_http(f"http://127.0.0.1:{port}/health", process, 300))
        yield port


@pytest.fixture(scope="session")
def llama_port(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if not SERVER.exists():
        pytest.skip("no llama-server: run scripts/peers.sh")
    folder = tmp_path_factory.mktemp("llama")
    port = processes.free_port()
    command = LlamaCpp(SERVER, model_path, 2).command("plain", port, 2, 4096)
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(processes.started(command, folder))
        stack.enter_context(processes.wait_http(f"http://127.0.0.1:{port}/health", process, 300))
        yield port
