"""The stand-in, a gateway before it, and what the runs showed (``build/clients.json``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .agents import AGENTS, Agent
from .backend import Backend, running
from .results import Results
from .sandbox import Sandbox
from .serving import Served, gateway_before

KEY = "as-the-key-of-these-tests"


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    with running() as backend:
        yield backend


@pytest.fixture(scope="session")
def gateway(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with gateway_before(backend.url, tmp_path_factory.mktemp("gateway")) as served:
        yield served


@pytest.fixture(scope="session")
def keyed(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same, but it asks for ``KEY``."""
    with gateway_before(backend.url, tmp_path_factory.mktemp("keyed"), key=KEY) as served:
        yield served


@pytest.fixture(scope="session")
def results() -> Results:
    return Results.open()


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox.make(tmp_path)


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Agent:
    """The agent that the test is parametrised with; skipped where it isn't installed."""
    found = AGENTS[request.param]
    if not found.installed:
        pytest.skip(f"{found.name} is not installed (scripts/clients.sh)")
    return found
