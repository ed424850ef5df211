"""The cost report, derived again from the raw rows with fractions, to the nano-dollar."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from agentspec.settings import BackendSettings, ModelSettings, PoolSettings, Settings
from agentspec.store import cost_cli, published
from agentspec.store.cost import Price
from agentspec.store.cost_json import as_json
from agentspec.store.cost_report import break_even, report
from agentspec.store.cost_text import lines
from agentspec.store.glance import glance
from agentspec.store.pool import nusd_per_h, provisioned_nusd
from agentspec.store.prices import PriceError, add_version
from agentspec.store.provision import BY_TOKENS, bill, shares
from agentspec.store.record import RequestRecord
from agentspec.store.usage import GROUPS, Usage
from agentspec.store.window import Window
from tests.store.ledger import EPOCH_MS, insert

HOUR_MS = 3_600_000
DAY = Window(EPOCH_MS - 24 * HOUR_MS, EPOCH_MS)
POOL = PoolSettings(gpus=8, gpu_usd_per_h=2.5, host_usd_per_h=1.1, overhead=1.15)


def parts_of(whole: int, weights: list[Fraction]) -> list[int]:
    """Largest remainders in other words: add a nano-dollar where the error is largest."""
    exact = [whole * weight / sum(weights) for weight in weights]
    given = [int(x) for x in exact]
    while sum(given) < whole:
        errors = [x - g for x, g in zip(exact, given, strict=True)]
        given[errors.index(max(errors))] += 1
    return given


def rows(n: int, seed: int, **fixed: Any) -> list[RequestRecord]:
    rng = random.Random(seed)
    made = []
    for number in range(n):
        in_tok = rng.randrange(1, 400_000)
        steps, accepted = rng.randrange(1, 500), rng.randrange(500)
        fields = {
            "backend": "own",
            "model": rng.choice(["m", "n"]),
            "upstream_model": "qwen",
            "session_id": rng.choice(["", "s1", "s2", "s3"]),
            "workload": rng.choice(["tool", "chat"]),
            "in_tok": in_tok,
            "cached_tok": rng.randrange(in_tok + 1),
            "out_tok": steps + accepted,
            "reason_tok": rng.randrange(steps),
            "forced_tok": rng.randrange(50),
            "spec_steps": steps,
            "spec_accepted": accepted,
            "spec_drafted": accepted + rng.randrange(300),
            "busy_prefill_us": rng.randrange(10**7),
            "busy_decode_us": rng.randrange(10**8),
            "busy_draft_us": rng.randrange(10**6),
            "busy_grammar_us": rng.randrange(10**5),
            **fixed,
        }
        ts_ms = DAY.since_ms + rng.randrange(24 * HOUR_MS)
        made.append(RequestRecord(id=f"{seed}-{number:06d}", ts_ms=ts_ms, **fields))
    return made


def settings(pool: PoolSettings | None = POOL, **more: BackendSettings) -> Settings:
    return Settings(
        backends={"own": BackendSettings(kind="engine", pool=pool), **more},
        models={"m": ModelSettings(backends=["own"])},
    )


def test_every_number_of_a_report_again_by_hand(engine: Engine, url: str):
    mine = rows(300, 1)
    paid = rows(40, 2, backend="paid")
    rng = random.Random(3)
    for row in paid:
        parts = [rng.randrange(10**9) for _ in range(4)]
        row.cost_fresh_nusd, row.cost_cached_nusd, row.cost_out_nusd = parts[:3]
        row.cost_nusd, row.cost_failed_nusd = sum(parts), parts[3]
        if rng.random() < 0.2:
            row.cost_cached_nusd = row.cost_nusd = None
    for row in mine[::40]:  # a vendor's call failed, before the own machine answered
        row.cost_failed_nusd = rng.randrange(10**9)
        row.cost_nusd = row.cost_failed_nusd + 5
    outside = rows(5, 4, backend="own")
    for row in outside:
        row.ts_ms = rng.choice([DAY.until_ms, DAY.since_ms - 1])
    insert(url, [*mine, *paid, *outside])
    with engine.begin() as connection:
        add_version(connection, "here", published.VALID_FROM_MS, published.prices())
    with engine.connect() as connection:
        found = report(connection, settings(), DAY, at=["kimi-k3", "tencent-hy3"], by="session_id")
    told = json.loads(json.dumps(as_json(found)))

    # (8 * $2.50 + $1.10) * 1.15 = $24.265 an hour, for 24 hours
    assert told["pools"][0]["nusd_per_h"] == 24_265_000_000
    whole = 24 * 24_265_000_000
    (own,) = told["pools"]
    assert own["total_nusd"] == whole and own["provisioned_ms"] == 24 * HOUR_MS

    kinds = {
        "fresh_nusd": sum(r.busy_prefill_us for r in mine),
        "cached_nusd": 0,
        "decode_nusd": sum(r.busy_decode_us for r in mine),
        "draft_nusd": sum(r.busy_draft_us for r in mine),
        "grammar_nusd": sum(r.busy_grammar_us for r in mine),
    }
    day_us = 24 * 3600 * 10**6
    idle_us = day_us - sum(kinds.values())
    weights = [Fraction(us) for us in (*kinds.values(), idle_us)]
    *busy, idle = parts_of(whole, weights)
    assert own["busy"] == dict(zip(kinds, busy, strict=True)) | {"total_nusd": sum(busy)}
    assert own["idle_nusd"] == idle and sum(busy) + idle == whole
    spread = parts_of(idle, weights[:-1])
    loaded = [a + b for a, b in zip(busy, spread, strict=True)]
    assert own["loaded"] == dict(zip(kinds, loaded, strict=True)) | {"total_nusd": whole}
    assert own["utilisation"] == float(Fraction(sum(kinds.values()), day_us))

    out, in_tok = sum(r.out_tok for r in mine), sum(r.in_tok for r in mine)
    fresh = in_tok - sum(r.cached_tok for r in mine)
    per = {
        "all_per_out": Fraction(whole, out),
        "all_per_total": Fraction(whole, out + in_tok),
        "busy_per_out": Fraction(sum(busy), out),
        "busy_per_total": Fraction(sum(busy), out + in_tok),
        "loaded_prefill_per_fresh_in": Fraction(loaded[0], fresh),
        "loaded_prefill_per_cached_in": Fraction(0),
        "loaded_generating_per_out": Fraction(sum(loaded[2:]), out),
    }
    assert own["per_million"] == {name: round(x * 10**6) for name, x in per.items()}

    rejected = sum(r.spec_drafted - r.spec_accepted for r in mine)
    accepted = sum(r.spec_accepted for r in mine)
    kept = sum(r.spec_steps + r.spec_accepted + r.forced_tok for r in mine)
    wasted = parts_of(busy[2], [Fraction(rejected), Fraction(kept)])[0]
    wasted += parts_of(busy[3], [Fraction(rejected), Fraction(accepted)])[0]
    assert own["of_which_rejected_drafts_nusd"] == wasted

    # by session: each kind divided by the sessions' own microseconds
    names = sorted({r.session_id for r in mine})
    us = ["busy_prefill_us", None, "busy_decode_us", "busy_draft_us", "busy_grammar_us"]
    for kind, column, amount in zip(kinds, us, busy, strict=True):
        theirs = [
            Fraction(sum(getattr(r, column) for r in mine if r.session_id == s) if column else 1)
            for s in names
        ]
        expected = parts_of(amount, theirs)
        assert [g["busy"][kind] for g in own["groups"]] == expected, kind
    assert [g["group"] for g in own["groups"]] == names
    assert sum(g["busy"]["total_nusd"] for g in own["groups"]) == sum(busy)

    # elsewhere: kimi-k3 is $3, $0.30 and $15; Hy3 has no cached price
    kimi, hy3 = own["elsewhere"]
    cached = in_tok - fresh
    exact = [
        Fraction(tokens * price, 1000)
        for tokens, price in ((fresh, 3_000_000), (cached, 300_000), (out, 15_000_000))
    ]
    bills = [round(x) for x in exact]
    assert list(kimi["cost"].values()) == bills and kimi["total_nusd"] == sum(bills)
    assert kimi["saved_nusd"] == sum(bills) - whole and kimi["tokenizer_differs"] is True
    used = Fraction(sum(kinds.values()), day_us)
    assert kimi["break_even_utilisation"] == float(used * whole / sum(bills))
    assert hy3["total_nusd"] is hy3["saved_nusd"] is hy3["break_even_utilisation"] is None
    assert hy3["cost"]["fresh_nusd"] == round(Fraction(fresh * 200_000, 1000))

    # what is billed by rows: sums over those of known cost
    (billed,) = told["billed"]
    known = [r for r in paid if r.cost_nusd is not None]
    assert billed["requests"] == 40 and billed["unknown"] == 40 - len(known) > 0
    kinds = ("fresh_nusd", "cached_nusd", "out_nusd", "failed_nusd")
    for name in kinds:
        assert billed[name] == sum(getattr(r, f"cost_{name}") for r in known)
    assert sum(billed[name] for name in kinds) == billed["total_nusd"]
    total = sum(r.cost_nusd or 0 for r in known)
    assert billed["total_nusd"] == total
    assert billed["per_million"]["all_per_out"] == round(
        Fraction(total * 10**6, sum(r.out_tok for r in known))
    )
    failed = sum(r.cost_failed_nusd or 0 for r in mine)
    assert told["failed_before_a_pool_nusd"] == failed > 0
    assert told["total_nusd"] == whole + total + failed
    with engine.connect() as connection:
        assert glance(connection, settings().pools, DAY).total_nusd == told["total_nusd"]
    assert any("failed before a pool answered" in line for line in lines(found))
    assert told["requests_of_unknown_cost"] == 40 - len(known)


USAGES = st.builds(
    Usage,
    requests=st.integers(1, 9),
    in_tok=st.integers(500, 1000),
    cached_tok=st.integers(0, 500),
    out_tok=st.integers(0, 1000),
    spec_drafted=st.integers(50, 100),
    spec_accepted=st.integers(0, 50),
    busy_prefill_us=st.integers(0, 10**9),
    busy_decode_us=st.integers(0, 10**9),
    busy_draft_us=st.integers(0, 10**9),
    busy_grammar_us=st.integers(0, 10**9),
)
POOLS = st.builds(
    PoolSettings,
    gpus=st.integers(0, 64),
    gpu_usd_per_h=st.decimals(0, 20, places=3).map(float),
    host_usd_per_h=st.decimals(0, 20, places=3).map(float),
    capex_usd=st.integers(0, 10**6).map(float),
    kw=st.decimals(0, 20, places=2).map(float),
    usd_per_kwh=st.decimals(0, 1, places=3).map(float),
    pue=st.decimals(1, 2, places=2).map(float),
    overhead=st.decimals(1, 6, places=2).map(float),
    replicas=st.integers(1, 4),
    cached_weight=st.decimals(0, 1, places=3).map(float),
)


@given(pool=POOLS, groups=st.lists(USAGES, min_size=1, max_size=8), ms=st.integers(0, 10**9))
def test_parts_equal_the_whole_on_every_level(pool: PoolSettings, groups: list[Usage], ms: int):
    names = [name for name in asdict(groups[0]) if name != "group"]
    sums: dict[str, Any] = {name: sum(getattr(g, name) for g in groups) for name in names}
    whole = Usage(**sums)
    found = bill(pool, Window(0, ms), whole)
    assert found.busy.total_nusd + found.idle_nusd == found.total_nusd
    assert found.loaded.total_nusd in (found.total_nusd, 0)
    assert all(part >= 0 for part in (*found.busy.values(), found.idle_nusd))
    assert 0 <= found.rejected_nusd <= found.busy.total_nusd
    if whole.busy_us:
        assert found.loaded.total_nusd == found.total_nusd == provisioned_nusd(pool, ms)
    divided = shares(pool, found, groups)
    for at, kind in enumerate(found.busy.values()):
        assert sum(parts.values()[at] for parts in divided) == kind


def test_a_pools_price_by_hand():
    assert nusd_per_h(PoolSettings(gpus=8, gpu_usd_per_h=2.5)) == 20 * 10**9
    owned = PoolSettings(
        capex_usd=262_800, amortisation_h=26_280, kw=7, pue=1.3, usd_per_kwh=0.12, overhead=1.5
    )
    # (10 + 7 * 1.3 * 0.12) * 1.5 = 16.638
    assert nusd_per_h(owned) == 16_638_000_000
    assert provisioned_nusd(owned, 1) == 4_622  # 4,621.67
    assert provisioned_nusd(owned, 0) == 0


def test_only_provisioned_time_is_paid_for():
    from_time = datetime(2026, 7, 1, 6, tzinfo=UTC)
    pool = PoolSettings(gpus=1, gpu_usd_per_h=1.0, from_time=from_time)
    start = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp() * 1000)
    window = Window(start, start + 24 * HOUR_MS)
    assert bill(pool, window, Usage()).total_nusd == 18 * 10**9
    pool.until_time = datetime(2026, 7, 1, 8, tzinfo=UTC)
    found = bill(pool, window, Usage())
    assert (found.total_nusd, found.idle_nusd) == (2 * 10**9, 2 * 10**9)
    assert (found.utilisation, found.loaded.total_nusd) == (0, 0)
    assert found.per_million_out() is None
    pool.until_time = pool.from_time
    assert bill(pool, window, Usage()).total_nusd == 0


def test_cached_tokens_get_their_weight_of_prefill_time():
    pool = PoolSettings(gpus=1, gpu_usd_per_h=3.6, cached_weight=0.1)
    work = Usage(requests=1, in_tok=1100, cached_tok=1000, busy_prefill_us=2 * 10**6)
    found = bill(pool, Window(0, 10_000), work)
    # a tenth of a cent a second: 2 s of prefill, half of them for cached tokens
    assert found.busy.values() == (10**6, 10**6, 0, 0, 0)
    assert found.idle_nusd == 8 * 10**6


def test_two_engines_have_twice_the_time():
    pool = PoolSettings(gpus=2, gpu_usd_per_h=3.6, replicas=2)
    found = bill(pool, Window(0, 10_000), Usage(out_tok=1, busy_decode_us=5 * 10**6))
    assert found.utilisation == Fraction(1, 4) and found.busy.decode_nusd == 5 * 10**6


def test_more_busy_than_provisioned_is_told_and_nothing_is_idle():
    pool = PoolSettings(gpus=1, gpu_usd_per_h=3.6)
    found = bill(pool, Window(0, 1_000), Usage(out_tok=1, busy_decode_us=1_500_000))
    assert (found.overrun_us, found.idle_us, found.utilisation) == (500_000, 0, 1)
    assert found.busy.decode_nusd == found.total_nusd == 10**6


def test_a_backend_that_tells_no_busy_time_is_split_by_tokens():
    pool = PoolSettings(gpus=1, gpu_usd_per_h=3.6)
    work = Usage(requests=2, in_tok=900, cached_tok=500, out_tok=100)
    found = bill(pool, Window(0, 8_000), work)
    assert found.split == BY_TOKENS
    assert found.busy.values() == (4 * 10**6, 0, 4 * 10**6, 0, 0)
    assert found.idle_us is None and found.utilisation is None
    assert break_even(found, 10**9) is None


def test_every_division_adds_up(engine: Engine, url: str):
    insert(url, rows(30, 5))
    for by in GROUPS:
        with engine.connect() as connection:
            (pool,) = report(connection, settings(), DAY, by=by).pools
        for at, kind in enumerate(pool.bill.busy.values()):
            assert sum(parts.values()[at] for _, parts in pool.groups) == kind, by
        assert sum(group.requests for group, _ in pool.groups) == 30


def test_elsewhere_by_tiers_versions_and_names(engine: Engine, url: str):
    insert(url, rows(50, 6, upstream_model="vendor/Big"))
    tiers = [
        Price(in_nusd_per_m=10**9, cached_nusd_per_m=0, out_nusd_per_m=10**9),
        Price(10**10, 0, None, 10**10, above_tok=200_000),
    ]
    with engine.begin() as connection:
        add_version(connection, "a", 0, {"big": tiers})
        add_version(connection, "b", DAY.until_ms + 1, {"big": [Price(0, 0, None, 0)]})
        add_version(connection, "c", 0, {"other": [Price(0, 0, None, 0)]})

    def elsewhere(*at: str):
        with engine.connect() as connection:
            return [
                one.bill for one in report(connection, settings(), DAY, at=at).pools[0].elsewhere
            ]

    mine = rows(50, 6)
    dear = [r for r in mine if r.in_tok > 200_000]
    cheap = [r for r in mine if r.in_tok <= 200_000]
    assert dear and cheap
    fresh = [sum(r.in_tok - r.cached_tok for r in rs) for rs in (cheap, dear)]
    first, second = elsewhere("big", "x/big@2")
    assert first.cost.fresh_nusd == 1000 * fresh[0] + 10_000 * fresh[1]
    assert first.version_id == 1 and first.tokenizer_differs is False
    assert second.cost.total_nusd == 0 and second.version_id == 2
    assert second.saved_nusd == -second.compared_nusd < 0  # negative is shown as it is
    assert elsewhere("other")[0].tokenizer_differs is True
    for unknown in ("nobody", "big@9", "big@x"):
        with pytest.raises(PriceError):
            elsewhere(unknown)


def test_the_command(engine: Engine, url: str):
    insert(url, rows(20, 7, busy_prefill_us=0) + rows(1, 8, backend="paid"))
    used = settings()
    used.store.url = url
    given = argparse.Namespace(since="24h", until=None, at=[], by="model", json=True)
    (text,) = cost_cli.run(used, given, DAY.until_ms)
    told = json.loads(text)
    assert (told["since_ms"], told["until_ms"]) == (DAY.since_ms, DAY.until_ms)
    given.json = False
    shown = "\n".join(cost_cli.run(used, given, DAY.until_ms))
    words = shown.split()
    assert words[words.index("total") + 1] == "$582.36"
    assert "requests of unknown cost            1 " in shown
    assert "saved by speculation: unknown" in shown and "energy: unknown" in shown


@pytest.mark.parametrize(
    "since, until, expected",
    [
        ("90m", None, (EPOCH_MS - 90 * 60_000, EPOCH_MS)),
        ("7d", "2026-07-08", (published.VALID_FROM_MS, published.VALID_FROM_MS + 7 * 24 * HOUR_MS)),
        ("1h", "2199-01-01", (EPOCH_MS - HOUR_MS, EPOCH_MS)),  # time to come is not paid for yet
        ("2026-07-01", None, (published.VALID_FROM_MS, EPOCH_MS)),
    ],
)
def test_windows(since: str, until: str | None, expected: tuple[int, int]):
    assert cost_cli.window_of(since, until, EPOCH_MS) == Window(*expected)


@pytest.mark.parametrize(
    "since, until",
    [("soon", None), ("2099-01-01", None), ("1h", "then"), ("999999d", None), ("1950-01-01", None)],
)
def test_windows_without_time(since: str, until: str | None):
    with pytest.raises(PriceError):
        cost_cli.window_of(since, until, EPOCH_MS)


def test_without_pools_or_rows_there_is_nothing_to_tell(engine: Engine):
    with engine.connect() as connection:
        found = report(connection, settings(pool=None), DAY)
    assert (found.total_nusd, found.pools, found.spends) == (0, [], [])
    assert "$0.00" in lines(found)[1]


def test_elsewhere_needs_a_pool_to_compare_with(url: str):
    used = settings(pool=None)
    used.store.url = url
    given = argparse.Namespace(since="24h", until=None, at=["kimi-k3"], by=None, json=False)
    with pytest.raises(PriceError, match=r"no backend has a pool .*backends\.NAME\.pool"):
        cost_cli.run(used, given, DAY.until_ms)
