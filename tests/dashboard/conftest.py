"""A ledger with rows and the dashboard over it: in process, and served to a browser."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from agentspec.dashboard.app import router
from agentspec.store import migrate
from agentspec.store.record import RequestRecord
from tests.store.ledger import (  # noqa: F401 (fixtures)
    EPOCH_MS,
    insert,
    new_postgres,
    postgres_server,
    random_record,
)

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;{{ 7*7 }}"


@pytest.fixture(scope="session")
def records() -> list[RequestRecord]:
    rng = random.Random(3)
    rows = [random_record(rng, number, span_ms=20 * 3_600_000) for number in range(150)]
    rows.append(
        RequestRecord(
            id=f"{HOSTILE}/../?#%",
            ts_ms=EPOCH_MS - 1000,
            model=HOSTILE,
            backend=HOSTILE,
            session_id=HOSTILE,
            client=HOSTILE,
            error_type=HOSTILE,
            status="error",
            http_status=502,
            decision={"reason": HOSTILE, "chosen": "engine"},
            spec_sources={HOSTILE: {"drafted": 4, "accepted": 1}},
            spec_hist=[3, 1],
            spec_steps=4,
            spec_drafted=4,
            spec_accepted=1,
        )
    )
    return rows


@pytest.fixture(scope="session")
def ledger_url(tmp_path_factory: pytest.TempPathFactory, records: list[RequestRecord]) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'agentspec.db'}"
    migrate.upgrade(url)
    insert(url, records)
    return url


def application(url: str, **options) -> FastAPI:
    app = FastAPI()
    app.include_router(router(url, clock=lambda: EPOCH_MS / 1000 - 0.001, **options))
    return app


@pytest.fixture
def client(ledger_url: str) -> Iterator[TestClient]:
    with TestClient(application(ledger_url)) as client:
        yield client


@pytest.fixture
def empty_client(tmp_path: Path) -> Iterator[TestClient]:
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    with TestClient(application(url), base_url="http://gateway.test:8000") as client:
        yield client


@pytest.fixture(scope="session")
def served(ledger_url: str) -> Iterator[str]:
    """The dashboard's base URL behind a real server on loopback."""
    with serving(application(ledger_url)) as url:
        yield url


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """An application behind a real server on loopback; its base URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    started = threading.Event()
    real = server.startup

    async def startup(*args, **kwargs) -> None:
        await real(*args, **kwargs)
        started.set()

    server.startup = startup
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    assert started.wait(60)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()
