"""Price versions: what is entered stays; which price holds when; a missing one is unknown."""

from __future__ import annotations

import argparse
import json
import sys
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, select, text

from agentspec.backends import litellm_prices
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    PoolSettings,
    PriceSettings,
    Settings,
)
from agentspec.store import migrate, price_cli, published
from agentspec.store.book import PriceBook
from agentspec.store.cost import BY_BUSY_TIME, BY_SETTINGS, BY_VERSION, Cost, Price, nusd_per_m
from agentspec.store.database import connect_reader
from agentspec.store.price_schema import price
from agentspec.store.pricer import Pricer, of_record
from agentspec.store.prices import PriceError, add_version, dated, versions
from agentspec.store.record import RequestRecord
from tests.store.ledger import EPOCH_MS, insert

DAY_MS = 86_400_000
M = 10**9  # a dollar per million tokens


def enter(engine: Engine, source: str, day: int, **models: Any) -> int | None:
    """A version valid from ``EPOCH_MS`` plus days; models: prices, or input prices in USD."""
    prices = {
        name.replace("_", "-"): value if isinstance(value, list) else [Price(in_nusd_per_m=value)]
        for name, value in models.items()
    }
    with engine.begin() as connection:
        return add_version(connection, source, EPOCH_MS + day * DAY_MS, prices)


def book(engine: Engine) -> PriceBook:
    with engine.connect() as connection:
        return PriceBook(dated(connection))


def test_the_version_valid_latest_by_then_holds(engine: Engine):
    assert enter(engine, "map", 0, one=1 * M, two=1 * M) == 1
    assert enter(engine, "map", 10, one=2 * M) == 2
    assert enter(engine, "hand", 5, one=3 * M) == 3
    assert enter(engine, "other", 10, one=4 * M) == 4  # as late as 2, entered after it
    found = book(engine)

    def held(model: str, day: float) -> tuple[int, int | None] | None:
        at = found.at(model, EPOCH_MS + int(day * DAY_MS), 1)
        return None if at is None else (at[0], at[1].in_nusd_per_m)

    assert held("one", -0.001) is None
    assert held("one", 0) == (1, 1 * M)
    assert held("one", 5) == (3, 3 * M)
    assert held("one", 9.999) == (3, 3 * M)
    assert held("one", 10) == (4, 4 * M)
    assert held("two", 99) == (1, 1 * M)
    assert held("three", 99) is None


def test_a_model_is_found_under_its_full_name_first(engine: Engine):
    enter(engine, "map", 0, **{"vendor/a": 1 * M, "a": 2 * M, "b": 3 * M})
    found = book(engine)
    for name, usd in (("vendor/a", 1), ("a", 2), ("else/a", 2), ("x/y/b", 3)):
        at = found.at(name, EPOCH_MS, 1)
        assert at is not None and at[1].in_nusd_per_m == usd * M, name


def test_long_prompts_have_their_own_tier(engine: Engine):
    tiers = [Price(in_nusd_per_m=1), Price(in_nusd_per_m=2, above_tok=200_000)]
    enter(engine, "map", 0, a=tiers)
    found = book(engine)
    for in_tok, expected in ((0, 1), (200_000, 1), (200_001, 2)):
        at = found.at("a", EPOCH_MS, in_tok)
        assert at is not None and at[1].in_nusd_per_m == expected


def test_a_version_is_never_changed(engine: Engine):
    assert enter(engine, "map", 0, a=1 * M) == 1
    assert enter(engine, "map", 0, a=9 * M, b=9 * M) is None
    with engine.connect() as connection:
        assert [v.id for v in versions(connection)] == [1]
        (only,) = dated(connection)
    assert only.price.in_nusd_per_m == 1 * M
    with pytest.raises(PriceError), engine.begin() as connection:
        add_version(connection, "empty", 0, {})


def test_a_missing_price_is_null_in_the_table(engine: Engine):
    with engine.begin() as connection:
        add_version(connection, published.SOURCE, published.VALID_FROM_MS, published.prices())
        rows = {row.model: row for row in connection.execute(select(price))}
        (version,) = versions(connection)
    assert (version.source, version.models) == ("issue 7, July 2026", 5)
    # USD per million tokens as the issue gives them: in, cached, out
    expected = {
        "deepseek-v4-pro": (None, "0.145", "3.48"),
        "deepseek-v4-flash": (None, "0.028", "0.28"),
        "tencent-hy3": ("0.20", None, "0.80"),
        "kimi-k3": ("3.00", "0.30", "15.00"),
        "meta-muse-spark-1.1": ("1.25", None, "4.25"),
    }
    assert rows.keys() == expected.keys()
    for model, usd in expected.items():
        row = rows[model]
        kept = (row.in_nusd_per_m, row.cached_nusd_per_m, row.out_nusd_per_m)
        assert kept == tuple(None if x is None else int(Decimal(x) * 10**9) for x in usd)
        assert row.cache_write_nusd_per_m is row.reason_nusd_per_m is None


def test_the_migration_keeps_rows_both_ways(url: str):
    """Down, where no cost can be unknown, and up again: only what is newer is lost."""
    known = RequestRecord(id="a", ts_ms=EPOCH_MS, cost_nusd=7, cost_out_nusd=7, spec_window="off")
    insert(url, [known, RequestRecord(id="b", ts_ms=EPOCH_MS + 1, in_tok=5)])
    migrate.downgrade(url, "0003")
    assert costs(url) == [("a", 7, 0, 0), ("b", 0, 0, 5)]
    migrate.upgrade(url)
    assert migrate.check(url)
    assert costs(url) == [("a", 7, 0, 0), ("b", 0, 0, 5)]
    insert(url, [RequestRecord(id="c", ts_ms=EPOCH_MS + 2)])
    assert costs(url)[2] == ("c", None, None, 0)


def costs(url: str) -> list[tuple]:
    found = connect_reader(url)
    with found.connect() as connection:
        query = "SELECT id, cost_nusd, cost_fresh_nusd, in_tok FROM request ORDER BY id"
        rows = [tuple(row) for row in connection.execute(text(query))]
    found.dispose()
    return rows


# -- what a request cost


def settings(**model: Any) -> Settings:
    backends = {
        "paid": BackendSettings(kind="litellm"),
        "own": BackendSettings(kind="engine", pool=PoolSettings(gpus=8, gpu_usd_per_h=2.5)),
        "bare": BackendSettings(kind="openai", url="http://127.0.0.1:1"),
    }
    return Settings(backends=backends, models={"m": ModelSettings(backends=["paid"], **model)})


def request(**fields: Any) -> RequestRecord:
    fields = {"backend": "paid", "upstream_model": "v/kimi-k3", **fields}
    return RequestRecord(
        id="r", ts_ms=EPOCH_MS, model="m", in_tok=1000, cached_tok=400, out_tok=50, **fields
    )


def priced(pricer: Pricer, **fields: Any) -> RequestRecord:
    record = request(**fields)
    pricer(record)
    return record


def test_a_commercial_request_is_priced_by_the_version_of_its_time(engine: Engine):
    kimi = published.prices()["kimi-k3"]
    enter(engine, "july", 0, **{"kimi-k3": kimi})
    enter(engine, "later", 1, **{"kimi-k3": [Price(in_nusd_per_m=1)]})
    pricer = Pricer(settings(upstream_name="v/kimi-k3"))
    pricer.refresh(engine)
    record = priced(pricer)
    assert (record.cost_formula, record.price_version_id) == (BY_VERSION, 1)
    # 600 * $3 + 400 * $0.30 + 50 * $15 per million
    assert (record.cost_fresh_nusd, record.cost_cached_nusd) == (1_800_000, 120_000)
    assert (record.cost_out_nusd, record.cost_nusd) == (750_000, 2_670_000)
    # at any other version it can be computed again, and the row stays as it is
    assert of_record(Price(in_nusd_per_m=1), record) == Cost(0, None, None)
    assert record.cost_nusd == 2_670_000


def test_what_is_not_priced_is_unknown_and_never_zero(engine: Engine):
    enter(engine, "july", 0, **published.prices())
    pricer = Pricer(settings(upstream_name="tencent-hy3"))
    pricer.refresh(engine)
    record = priced(pricer, upstream_model="tencent-hy3")
    assert (record.cost_fresh_nusd, record.cost_cached_nusd) == (120_000, None)
    assert (record.cost_out_nusd, record.cost_nusd) == (40_000, None)
    for fields in (
        {"upstream_model": "nobody/knows"},
        {"backend": "bare"},
        {"backend": "own"},  # output, but no busy time told
    ):
        record = priced(pricer, **fields)
        assert record.cost_nusd is record.cost_fresh_nusd is record.cost_out_nusd is None
        assert (record.cost_formula, record.price_version_id) == (0, None)


def test_what_ran_nowhere_cost_nothing():
    assert priced(Pricer(settings()), backend="").cost_nusd == 0


@pytest.mark.parametrize("status", ["ok", "cancelled", "error"])
@pytest.mark.parametrize("backend", ["paid", "own"])
def test_tokens_that_nobody_told_have_no_known_cost(status: str, backend: str):
    """Whatever the price: a count that is missing is not a count of 0."""
    listed = PriceSettings(input_usd_per_m=1.0, cached_usd_per_m=0.5, output_usd_per_m=2.0)
    for pricer in (Pricer(settings()), Pricer(settings(price=listed))):
        untold = RequestRecord("r", 0, model="m", backend=backend, status=status)
        untold.token_source = "none"
        pricer(untold)
        assert (untold.cost_nusd, untold.cost_out_nusd, untold.cost_formula) == (None, None, 0)
        refused = RequestRecord("r", 0, model="m", backend=backend, token_source="none")
        refused.cost_nusd = 0
        pricer(refused)
        assert (refused.cost_nusd, refused.cost_fresh_nusd) == (0, 0)


def test_prices_of_the_settings_go_first(engine: Engine):
    enter(engine, "july", 0, **published.prices())
    listed = PriceSettings(input_usd_per_m=1.0, cached_usd_per_m=0.5, output_usd_per_m=2.0)
    pricer = Pricer(settings(upstream_name="kimi-k3", price=listed))
    pricer.refresh(engine)
    record = priced(pricer, upstream_model="kimi-k3")
    assert (record.cost_formula, record.price_version_id) == (BY_SETTINGS, None)
    assert record.cost_nusd == 600_000 + 200_000 + 100_000


def test_a_request_of_a_pool_costs_its_busy_time():
    record = priced(
        Pricer(settings()),
        backend="own",
        busy_prefill_us=1_000,
        busy_decode_us=2_000,
        busy_draft_us=300,
        busy_grammar_us=40,
    )
    # $20 an hour is 20e9 / 3.6e9 = 50/9 nano-USD a microsecond
    assert record.cost_formula == BY_BUSY_TIME
    assert (record.cost_fresh_nusd, record.cost_cached_nusd) == (5_556, 0)
    assert (record.cost_out_nusd, record.cost_nusd) == (13_000, 18_556)


def test_the_book_follows_the_table_and_survives_a_missing_database(engine: Engine, url: str):
    pricer = Pricer(settings(upstream_name="kimi-k3"))
    reader = connect_reader(url)
    pricer.refresh(reader)
    assert priced(pricer).cost_nusd is None
    enter(engine, "july", 0, **published.prices())
    pricer.refresh(reader)
    assert priced(pricer).cost_nusd == 2_670_000
    missing = connect_reader("sqlite:////nowhere/at/all.db")
    pricer.refresh(missing)
    assert priced(pricer).cost_nusd == 2_670_000
    reader.dispose()


def test_the_gateway_reads_the_book_when_it_starts(engine: Engine, url: str):
    enter(engine, "july", 0, **published.prices())
    used = settings(upstream_name="kimi-k3")
    used.store.url = url
    pricer = Pricer(used)
    with pricer.reading():
        assert priced(pricer).cost_nusd == 2_670_000


# -- litellm's map and the commands


def test_the_installed_map_is_read_without_litellm():
    loaded = set(sys.modules)
    found = litellm_prices.read()
    assert not any(name.split(".")[0] == "litellm" for name in set(sys.modules) - loaded)
    prices = price_cli.of_map(found)
    assert len(prices) > 2000 and "sample_spec" not in prices
    for tiers in prices.values():
        assert [tier.above_tok for tier in tiers] == sorted({tier.above_tok for tier in tiers})
    # one model by hand: $2.50, $1.25 and $10 per million tokens
    (gpt,) = prices["gpt-4o"]
    assert gpt == Price(2_500_000_000, 1_250_000_000, None, 10_000_000_000, None)


def test_a_map_keeps_tiers_and_leaves_out_what_is_not_by_token():
    found = litellm_prices.parse(
        {
            "sample_spec": {"input_cost_per_token": Decimal(0)},
            "image": {"output_cost_per_image": Decimal("0.04")},
            "a": {
                "input_cost_per_token": Decimal("1.25E-6"),
                "input_cost_per_token_above_200k_tokens": Decimal("2.5E-6"),
                "output_cost_per_token": Decimal("1E-5"),
                "output_cost_per_token_batches": Decimal("5E-6"),
                "cache_read_input_token_cost": None,
                "mode": "chat",
            },
        }
    )
    base = {"input": Decimal("1.25E-6"), "output": Decimal("1E-5")}
    assert found == {"a": {0: base, 200_000: {**base, "input": Decimal("2.5E-6")}}}


def run(function: Any, url: str, *more: Any, **arguments: Any) -> list[str]:
    return function(url, argparse.Namespace(**arguments), *more)


def test_import_list_set_show(url: str):
    found = litellm_prices.PriceMap("9.9", {"x/a": {0: {"input": Decimal("1E-6")}}})
    for told in ("is version", "was there already"):
        lines = run(price_cli.run_import, url, lambda: found, valid_from=None)
        assert len(lines) == 2 and all(told in line for line in lines)
    assert len(run(price_cli.run_list, url, version=None, json=False)) == 2
    prices = dict.fromkeys(price_cli.KINDS) | {"input": Decimal(3)}
    prices["output"], more = Decimal("15.5"), {"valid_from": EPOCH_MS}
    (line,) = run(price_cli.run_set, url, model="x/a", source="vendor", **prices, **more)
    assert line.startswith("version 3: x/a from 2027-01-15")
    with pytest.raises(PriceError, match="stays as it is"):
        run(price_cli.run_set, url, model="x/a", source="vendor", **prices, **more)
    (line,) = run(price_cli.run_show, url, model="x/a", json=True)
    shown = json.loads(line)
    assert [one["source"] for one in shown] == ["litellm 9.9", "vendor: x/a"]
    assert shown[1]["price"]["out_nusd_per_m"] == nusd_per_m("15.5")
    assert shown[1]["price"]["cached_nusd_per_m"] is None
    heads, first, last = run(price_cli.run_show, url, model="x/a", json=False)
    assert first.split()[:6] == ["1", *["unknown"] * 5]
    assert last.split()[:6] == ["3", *["unknown"] * 3, "15.5", "unknown"]
    assert len(heads.split()) == 12
    with pytest.raises(PriceError, match="no price of 'nobody'"):
        run(price_cli.run_show, url, model="nobody", json=False)
    none = dict.fromkeys(price_cli.KINDS)
    with pytest.raises(PriceError, match="at least one price"):
        run(price_cli.run_set, url, model="x/a", source="v", valid_from=None, **none)


@pytest.mark.parametrize("word", ["-1", "nan", "inf", "x", "1e9", "4e-10", "5e-10"])
def test_what_is_no_price(word: str):
    with pytest.raises(argparse.ArgumentTypeError):
        price_cli.usd(word)


def test_dates():
    assert price_cli.instant("2026-07-01") == published.VALID_FROM_MS
    assert price_cli.instant("2026-07-01T02:00:00+02:00") == published.VALID_FROM_MS
    with pytest.raises(argparse.ArgumentTypeError):
        price_cli.instant("July")
    for odd in ("0001-01-01T00:00:00+14:00", "1969-12-31", "2200-01-01", "9999-12-31"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 1970 to 2199"):
            price_cli.instant(odd)
