"""Limits on two real gateway processes over one database, and that no secret is left anywhere."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import MetaData, select

from agentspec.bench.limits import Plan, limit_of, measure, running, wrong
from agentspec.store.budgets import CONCURRENCY, RPM, TPM, USD_TOTAL
from agentspec.store.database import connect
from tests.store.ledger import empty_url, new_postgres, postgres_server  # noqa: F401 (fixtures)

N, CLIENTS = 320, 64


def every_value(url: str) -> bytes:
    """All rows of all tables."""
    engine, metadata = connect(url), MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        rows = [
            str(tuple(row))
            for table in metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
    engine.dispose()
    return "\n".join(rows).encode()


def test_limits_hold_over_two_processes(empty_url: str, tmp_path: Path):  # noqa: F811
    plan = Plan([], clients=CLIENTS, n=N, log_level="debug")
    with running(plan, empty_url, tmp_path) as here:
        rows = [measure(here, what, plan) for what in (RPM, TPM, CONCURRENCY, USD_TOTAL)]
    assert wrong(rows) == []
    for row in rows:
        assert row["served"] + row["refused"] == row["n"] == N and row["lost"] == 0
        assert row["refused"] > 0
    rpm, _, concurrency, budget = rows
    assert rpm["over"] == concurrency["over"] == 0
    assert budget["used"] > limit_of(USD_TOTAL, N) // 2  # the money is there to be used

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" and path.stat().st_size for path in files)
    artefacts = b"".join(path.read_bytes() for path in files) + every_value(empty_url)
    assert b"bench rpm" in artefacts and len(here.secrets) == 4
    for secret in here.secrets:
        assert secret.removeprefix("as-").encode() not in artefacts
