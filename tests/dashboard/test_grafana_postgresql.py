"""Every query of the Grafana dashboard over PostgreSQL, run on one, against what the rows say."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentspec.store import migrate
from agentspec.store.record import RequestRecord
from tests.dashboard.rows import agents_day, store
from tests.store.ledger import EPOCH_MS

DASHBOARD = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "postgresql.json").read_text()
)
PANELS = {(p["title"], p["type"]): p["targets"][0]["rawSql"] for p in DASHBOARD["panels"]}
LEVELS = ("minute", "hour", "day")
DAY_S = 86_400
pytestmark = pytest.mark.postgres

Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def rows() -> list[RequestRecord]:
    return agents_day(400)[0]


@pytest.fixture(scope="module")
def ask(new_postgres: Callable[[], str], rows: list[RequestRecord]) -> Ask:
    """Runs a query as Grafana would send it, in a transaction that may not write."""
    url = new_postgres()
    migrate.upgrade(url)
    store(url, rows, agents_day(400)[1])

    def ask(sql: str, level: str = "minute", interval_s: int = 3600) -> list[dict[str, Any]]:
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.read_only = True
            cursor = connection.execute(filled(sql, level, interval_s).encode())
            assert cursor.description is not None
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    return ask


def filled(sql: str, level: str, interval_s: int) -> str:
    """With Grafana's macros and variables as it fills them in."""
    until_s = EPOCH_MS // 1000
    values = {
        "$__unixEpochFrom()": str((until_s - DAY_S) // DAY_S * DAY_S),
        "$__unixEpochTo()": str(until_s + DAY_S),
        "$__interval_ms": str(1000 * interval_s),
        "${level:raw}": level,
        "$model": "'smollm2-135m-instruct','gpt-9'",
        "$backend": "'engine','paid'",
    }
    for name, value in values.items():
        sql = sql.replace(name, value)
    assert "$" not in sql, sql
    return sql


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel[0])
def test_every_panel_answers(ask: Ask, panel: tuple[str, str], level: str):
    found = ask(PANELS[panel], level)
    assert found
    if panel[1] == "timeseries":
        assert found[0]["time"].tzinfo is not None
        assert all(value is None or value >= 0 for row in found for value in _numbers(row))


def _numbers(row: dict[str, Any]) -> list[Any]:
    return [value for name, value in row.items() if name not in ("time", "metric")]


@pytest.mark.parametrize("level", LEVELS)
def test_totals_are_those_of_the_rows(ask: Ask, rows: list[RequestRecord], level: str):
    def one(title: str) -> float:
        return float(ask(PANELS[(title, "stat")], level)[0]["value"])

    accepted, steps = sum(r.spec_accepted for r in rows), sum(r.spec_steps for r in rows)
    failed = sum(r.status in ("error", "lost") for r in rows)
    assert one("Requests") == len(rows)
    assert one("Failed share") == pytest.approx(failed / len(rows))
    assert one("Known cost") == pytest.approx(sum(r.cost_nusd or 0 for r in rows) / 1e9)
    assert one("Requests of unknown cost") == sum(r.cost_nusd is None for r in rows)
    assert one("Tokens a step") == pytest.approx(1 + accepted / steps)
    whole = ask(PANELS[("Requests", "timeseries")], level)
    assert sum(row["requests"] for row in whole) == len(rows)


def test_percentiles_are_within_a_bin_of_the_rows(ask: Ask, rows: list[RequestRecord]):
    (found,) = ask(PANELS[("Time to first token", "timeseries")], "hour", interval_s=10**9)
    times = sorted(r.ttft_ms for r in rows if r.ttft_ms is not None)
    assert found["p50"] == pytest.approx(statistics.median_low(times), rel=0.006)
    assert found["p50"] < found["p90"] < found["p99"] <= times[-1] * 1.006


def test_sources_of_drafts(ask: Ask, rows: list[RequestRecord]):
    found = ask(PANELS[("Drafts by source, of the newest 10,000 requests", "table")])
    told = {row["source"]: (row["drafted"], row["accepted"]) for row in found}
    for name, counts in told.items():
        of_rows = [r.spec_sources[name] for r in rows if name in r.spec_sources]
        assert counts == tuple(sum(one[w] for one in of_rows) for w in ("drafted", "accepted"))
    assert set(told) == {"forced", "suffix", "dspark"}


def test_variables_offer_what_there_is(ask: Ask):
    queries = {v["name"]: v["query"] for v in DASHBOARD["templating"]["list"]}
    assert {row["model"] for row in ask(queries["model"])} == {"smollm2-135m-instruct", "gpt-9"}
    assert {row["backend"] for row in ask(queries["backend"])} == {"engine", "paid"}


def test_panels_have_numbers_and_only_read():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) > 12
    assert not re.search(r"\b(insert|update|delete|alter|drop)\b", str(PANELS), re.I)
