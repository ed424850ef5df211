"""The page of costs: the report's numbers, and nothing where nothing is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentspec.dashboard.context import Context
from agentspec.settings import PoolSettings
from agentspec.store import migrate
from agentspec.store.cost import Price
from agentspec.store.database import connect
from agentspec.store.prices import add_version
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.dashboard.html import figure, table
from tests.dashboard.test_pages import tile, words
from tests.store.ledger import EPOCH_MS, insert


def rows() -> list[RequestRecord]:
    def made(number: int, **fields: Any) -> RequestRecord:
        return RequestRecord(id=f"r{number}", ts_ms=EPOCH_MS - 600_000 * (number + 1), **fields)

    busy: dict[str, Any] = {"busy_prefill_us": 36 * 10**6, "busy_decode_us": 324 * 10**6}
    return [
        *(made(n, backend="own", in_tok=900, out_tok=100, **busy) for n in range(10)),
        made(10, backend="paid", in_tok=1000, out_tok=10, cost_nusd=5 * 10**9),
        made(11, backend="paid", in_tok=1000, out_tok=10),
    ]


def page(tmp_path: Path, records: list[RequestRecord], query: str = "", **options: Any) -> str:
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    insert(url, records)
    engine = connect(url)
    with engine.begin() as connection:
        vendor = Price(in_nusd_per_m=2 * 10**9, out_nusd_per_m=10 * 10**9)
        add_version(connection, "typed in", EPOCH_MS - 10**9, {"vendor-1": [vendor]})
        dear = Price(in_nusd_per_m=10**14, out_nusd_per_m=10**14)
        add_version(connection, "typed in", EPOCH_MS - 10**8, {"dear": [dear]})
    engine.dispose()
    with TestClient(application(url, **options)) as client:
        answer = client.get(f"/dashboard/cost{query}")
    assert answer.status_code == 200
    return answer.text


def test_provisioned_and_billed(tmp_path: Path):
    pools = {"own": PoolSettings(gpus=8, gpu_usd_per_h=2.5)}
    found = page(tmp_path, rows(), context=Context(pools=pools))
    # The page's clock stands at the end of the 24 hours: 24 * 8 * $2.50
    assert tile(found, "Provisioned") == "$480.00" and tile(found, "Cost") == "$485.00"
    assert tile(found, "Idle") == "$460.00"
    assert tile(found, "Billed by request") == "$5.00" and tile(found, "Unknown cost") == "1"
    text = words(found)
    # 3,600 busy seconds at $20 an hour, a tenth of them prefill
    assert "Fresh prefill $2.00" in text and "Decode $18.00" in text
    assert "8 GPUs for" in text and "split by busy time" in text


def elsewhere(tmp_path: Path, model: str) -> dict[str, str]:
    pools = {"own": PoolSettings(gpus=8, gpu_usd_per_h=2.5)}
    found = page(tmp_path, rows(), f"?at={model}", context=Context(pools=pools))
    head, row = table(figure(found, "elsewhere"))
    return dict(zip(head, row, strict=True))


def test_the_same_tokens_at_a_vendors_price(tmp_path: Path):
    """9,000 tokens in at $2 and 1,000 out at $10 a million, against a day of the pool."""
    assert elsewhere(tmp_path, "vendor-1") == {
        "Backend": "own",
        "At the price of": "vendor-1",
        "Cost here": "$480.00",
        "Cost there": "$0.03",
        "Saved": "-$479.97",
        "Breaks even when busy": "never",
        "Tokenizer": "another one",
    }


def test_the_chosen_price_is_shown_also_where_it_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agentspec.dashboard.cost_page.MOST_MODELS", 1)
    found = page(tmp_path, rows(), "?at=vendor-1")
    assert '<option value="vendor-1" selected>' in found and '<option value="dear">' in found


def test_where_a_vendor_would_have_been_dearer(tmp_path: Path):
    """10,000 tokens at $0.1 each."""
    found = elsewhere(tmp_path, "dear")
    assert (found["Cost there"], found["Saved"]) == ("$1,000.00", "$520.00")


def test_without_prices_it_says_what_to_do(tmp_path: Path):
    found = page(tmp_path, [])
    assert tile(found, "Cost") == "$0" and tile(found, "Provisioned") == "$0"
    assert "None has a price" in words(found) and "No other request" in words(found)


def test_a_cost_that_nobody_knows_is_not_nothing(tmp_path: Path):
    found = page(tmp_path, rows()[11:])
    assert tile(found, "Cost") == tile(found, "Billed by request") == "unknown"
    assert tile(found, "Unknown cost") == "1"


def test_the_page_is_linked(tmp_path: Path):
    assert 'href="/dashboard/cost?range=24h" aria-current="page"' in page(tmp_path, [])
