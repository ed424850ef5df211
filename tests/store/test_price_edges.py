"""Prices set while a gateway runs, of odd dates and names."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest
from sqlalchemy import Engine, text

from agentspec.settings import PriceSettings
from agentspec.store import price_cli, published
from agentspec.store import pricer as pricer_module
from agentspec.store.cost import BY_SETTINGS, Price
from agentspec.store.counterfactual import chosen
from agentspec.store.pricer import Pricer
from agentspec.store.prices import PriceError
from agentspec.store.record import RequestRecord
from tests.store.ledger import EPOCH_MS, insert
from tests.store.test_prices import DAY_MS, M, book, enter, priced, run, settings


def test_a_price_set_while_the_gateway_runs_holds_at_its_next_look(
    engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
):
    """No price, then one, then another: each is frozen from the look after it on."""
    assert pricer_module.LOOK_S <= 1.0
    monkeypatch.setattr(pricer_module, "LOOK_S", 0.01)
    looked, real = threading.Semaphore(0), Pricer.refresh

    def refresh(self: Pricer, reader: Engine) -> None:
        real(self, reader)
        looked.release()

    def look() -> None:
        """Wait for one that begins from now on."""
        while looked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert looked.acquire(timeout=60)

    monkeypatch.setattr(Pricer, "refresh", refresh)
    used = settings(upstream_name="kimi-k3")
    used.store.url = url
    pricer = Pricer(used)
    with pricer.reading():
        assert priced(pricer).cost_nusd is None
        enter(engine, "july", 0, **published.prices())
        look()
        assert priced(pricer).cost_nusd == 2_670_000
        enter(engine, "a", 0, **{"kimi-k3": [Price(0, 0, None, 10**9)]})
        look()
        assert priced(pricer).cost_nusd == 50_000  # 50 out at $1 a million


def test_a_version_of_an_impossible_date_is_shown_and_none_is_entered(engine: Engine, url: str):
    """Such a date got in once, and must not hide the others."""
    with pytest.raises(PriceError, match="1970"):
        enter(engine, "odd", -(10**6), a=M)
    enter(engine, "good", 0, a=M)
    with engine.begin() as connection:
        connection.execute(text("UPDATE price_version SET valid_from_ms = -62135647200000"))
    (line,) = run(price_cli.run_list, url, version=None, json=False)
    assert "-62135647200000 ms" in line and line.endswith("good")
    assert "-62135647200000 ms" in run(price_cli.run_show, url, model="a", json=False)[1]


def test_a_version_nothing_was_billed_by_can_be_withdrawn(engine: Engine, url: str):
    enter(engine, "good", 0, **{"kimi-k3": [Price(M, M, None, M)]})
    enter(engine, "wrong", 0, **{"kimi-k3": [Price(9 * M, 9 * M, None, 9 * M)]})
    used = settings(upstream_name="kimi-k3")
    used.store.url = url
    pricer = Pricer(used)
    pricer.refresh(engine)
    dear = priced(pricer).cost_nusd
    (line,) = run(price_cli.run_withdraw, url, version=2)
    assert "version 2" in line and "wrong" in line
    pricer.refresh(engine)  # running gateways see it as they see a new one
    cheap = priced(pricer)
    assert cheap.price_version_id == 1 and dear == 9 * (cheap.cost_nusd or 0) > 0
    for version in (2, 7):
        with pytest.raises(PriceError, match=f"no price version {version}"):
            run(price_cli.run_withdraw, url, version=version)
    # the number isn't given away again, and the mended price may be of the same source and date
    assert enter(engine, "wrong", 0, **{"kimi-k3": [Price(M)]}) == 3
    listed = run(price_cli.run_list, url, version=None, json=False)
    assert any("withdrawn #2: wrong" in line and " 0 models" in line for line in listed)


def test_a_version_requests_were_billed_by_stays(engine: Engine, url: str):
    enter(engine, "good", 0, a=M)
    insert(url, [RequestRecord("r", EPOCH_MS, cost_nusd=1, price_version_id=1)])
    with pytest.raises(PriceError, match="stays"):
        run(price_cli.run_withdraw, url, version=1)
    assert book(engine).at("a", EPOCH_MS, 1) == (1, Price(M))


@pytest.mark.parametrize("model", ["", "  ", "a\0b"])
def test_a_price_needs_a_model(url: str, model: str):
    prices = dict.fromkeys(price_cli.KINDS, Decimal(1))
    with pytest.raises(PriceError, match="name"):
        run(price_cli.run_set, url, model=model, source="v", valid_from=None, **prices)


def test_a_price_of_the_future_does_not_hide_one_of_another_name(engine: Engine):
    """As ``cost --at`` chooses: the best name that is priced by then."""
    enter(engine, "old", 0, **{"big": [Price(M)]})
    enter(engine, "new", 5, **{"v/big": [Price(2 * M)]})
    found = book(engine)
    assert found.at("v/big", EPOCH_MS, 1) == (1, Price(M))
    assert found.at("v/big", EPOCH_MS + 5 * DAY_MS, 1) == (2, Price(2 * M))
    with engine.connect() as connection:
        assert [one.version_id for one in chosen(connection, "v/big", EPOCH_MS)] == [1]


@pytest.mark.parametrize(
    ("out_tok", "cost"), [(2**48 // 15_000, 281_474_976_705_000), (2**48, None)]
)
def test_an_absurd_cost_is_unknown(out_tok: int, cost: int | None):
    """$15 a million: up to 2^48 nano-USD a row holds."""
    pricer = Pricer(settings(price=PriceSettings(output_usd_per_m=15.0)))
    record = RequestRecord("r", EPOCH_MS, model="m", backend="paid", out_tok=out_tok)
    pricer(record)
    assert (record.cost_out_nusd, record.cost_nusd) == (cost, cost)
    assert record.cost_formula == (0 if cost is None else BY_SETTINGS)
