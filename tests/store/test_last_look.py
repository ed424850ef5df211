"""The writer's last look for a price, before a request of unknown cost becomes a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select, text

from agentspec.settings import BackendSettings, ModelSettings, PoolSettings, Settings
from agentspec.store.cost import BY_VERSION, Price
from agentspec.store.journal import Journal
from agentspec.store.pricer import Pricer
from agentspec.store.prices import add_version
from agentspec.store.record import RequestRecord
from agentspec.store.schema import request
from agentspec.store.slices import Slice, sums
from agentspec.store.window import Window
from agentspec.store.writer import Writer
from tests.store.ledger import EPOCH_MS

PRICE = Price(in_nusd_per_m=3 * 10**9, cached_nusd_per_m=0, out_nusd_per_m=15 * 10**9)
KNOWN_NUSD = 1000 * 3000 + 50 * 15000
FAILED = {"error": "invalid_tool_call", "tokens": {"in_tok": 100, "out_tok": 10}}
FAILED_NUSD = 100 * 3000 + 10 * 15000


def settings() -> Settings:
    backends = {
        "paid": BackendSettings(kind="litellm"),
        "own": BackendSettings(kind="engine", pool=PoolSettings(gpus=8, gpu_usd_per_h=2.5)),
        "bare": BackendSettings(kind="openai", url="http://127.0.0.1:1"),
    }
    models = {"m": ModelSettings(backends=["paid", "own", "bare"], upstream_name="v/kimi-k3")}
    return Settings(backends=backends, models=models)


def ended(id: str, backend: str = "paid", **fields: Any) -> RequestRecord:
    common = {"model": "m", "upstream_model": "v/kimi-k3", "in_tok": 1000, "out_tok": 50}
    record = RequestRecord(id=id, ts_ms=EPOCH_MS, backend=backend, **(common | fields))
    Pricer(settings())(record)  # a gateway that knows no price yet
    return record


def drained(tmp_path: Path, engine: Engine, *records: RequestRecord) -> dict[str, Any]:
    """The rows by id."""
    with Journal(tmp_path) as journal:
        for record in records:
            journal.close(record)
    writer = Writer(engine, tmp_path, Pricer(settings()))
    while writer.drain_once():
        pass
    writer.close()
    assert writer.drained.rows == len(records)
    with engine.connect() as connection:
        return {row.id: row for row in connection.execute(select(request))}


def enter(engine: Engine) -> None:
    with engine.begin() as connection:
        add_version(connection, "here", EPOCH_MS - 1, {"kimi-k3": [PRICE]})


def test_a_price_that_came_in_between_holds(tmp_path: Path, engine: Engine):
    failed = {"attempts": [{"backend": "paid", **FAILED}, {"backend": "own"}]}
    unclear = {"attempts": [{"backend": "paid", "unclear": True}, {"backend": "paid"}]}
    records = [
        ended("told"),
        ended("untold", token_source="none"),
        ended("bare", "bare"),
        ended("after", "own", busy_decode_us=9, decision=failed),
        ended("unclear", decision=unclear),
    ]
    assert [record.cost_nusd for record in records] == [None] * 5
    enter(engine)
    rows = drained(tmp_path, engine, *records)
    costs = {id: (row.cost_nusd, row.cost_failed_nusd) for id, row in rows.items()}
    assert costs == {
        "told": (KNOWN_NUSD, 0),
        "untold": (None, 0),
        "bare": (None, 0),
        "after": (50 + FAILED_NUSD, FAILED_NUSD),  # 9 us at 50 / 9 nano-USD each
        "unclear": (None, None),
    }
    told = rows["told"]
    assert (told.cost_formula, told.price_version_id) == (BY_VERSION, 1)
    with engine.connect() as connection:
        window = Slice(Window(EPOCH_MS - 10**7, EPOCH_MS + 10**7))
        (found,) = sums(connection, window, ("unpriced", "cost_nusd", "cost_failed_nusd")).values()
    assert found == {
        "unpriced": 3,
        "cost_nusd": KNOWN_NUSD + 50 + FAILED_NUSD,
        "cost_failed_nusd": FAILED_NUSD,
    }


def test_what_was_priced_stays(tmp_path: Path, engine: Engine):
    record = ended("early")
    record.cost_nusd, record.cost_formula, record.price_version_id = 7, BY_VERSION, 9
    enter(engine)
    row = drained(tmp_path, engine, record)["early"]
    assert (row.cost_nusd, row.price_version_id) == (7, 9)


def test_prices_that_cannot_be_read_hold_nothing_up(tmp_path: Path, engine: Engine):
    enter(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE price RENAME TO elsewhere"))
    odd = ended("odd")
    odd.decision = {"attempts": [3, {"backend": "paid", "tokens": "many"}, {}]}
    rows = drained(tmp_path, engine, ended("a"), odd)
    assert {id: row.cost_nusd for id, row in rows.items()} == {"a": None, "odd": None}
