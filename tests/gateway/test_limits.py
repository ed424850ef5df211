"""Limits of a key at one gateway: who is let in, what he is told, what it costs him."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from sqlalchemy import select

from agentspec.store.budgets import period
from agentspec.store.database import connect
from agentspec.store.keys import key_owner
from agentspec.store.keys_report import overview
from agentspec.store.keys_schema import limit_usage
from agentspec.store.leases import Leases
from tests.gateway.keyed import Keyed, key_store, keyed
from tests.gateway.scripts import USAGE

TOKENS = USAGE["total_tokens"]
MESSAGE = {"model": "good", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture
def here(tmp_path, up) -> Keyed:
    found = keyed(tmp_path, up.url)
    # The start of a minute, so that none ends within a test.
    found.ahead.by_s = 60 - time.time() % 60 + 1
    return found


def use(here: Keyed) -> dict[str, tuple[int, int]]:
    """(used, held) by kind, of every limit there is."""
    engine = connect(here.url)
    try:
        found = overview(engine, here.ahead.clock().now_ms())
    finally:
        engine.dispose()
    everybody = [*found.keys, *found.projects]
    return {u.limit.kind: (u.used, u.held) for one in everybody for u in one.uses}


async def test_requests_a_minute(here, up):
    _, secret = here.key(rpm=3)
    async with here.gateway(secret) as gateway:
        for left in (2, 1, 0):
            answer = await gateway.chat("good", stream=left == 1)
            assert answer.status_code == 200
            assert answer.headers["x-ratelimit-limit-requests"] == "3"
            assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
            assert re.fullmatch(r"\d+s", answer.headers["x-ratelimit-reset-requests"])
        refused = await gateway.chat("good", stream=True)
        error = refused.json()["error"]
        assert refused.status_code == 429
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        wait_s = int(refused.headers["retry-after"])
        assert 1 <= wait_s <= 60
        assert re.search(
            r"Limit 3, Used 3, Requested 1\. Please try again in [\d.]+s", error["message"]
        )
        assert len(up.seen) == 3
        row = gateway.journal.closed[-1]
        assert (row.status, row.http_status, row.error_code) == (
            "error",
            429,
            "rate_limit_exceeded",
        )
        here.ahead.by_s += wait_s
        assert (await gateway.chat("good")).status_code == 200
    assert use(here)["rpm"] == (1, 0)


async def test_messages_tells_it_in_its_own_words(here):
    _, secret = here.key(rpm=1, tpm=1000)
    async with here.gateway(secret) as gateway:
        answer = await gateway.http.post("/v1/messages", json=MESSAGE)
        assert answer.status_code == 200
        headers = answer.headers
        assert headers["anthropic-ratelimit-requests-limit"] == "1"
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert headers["anthropic-ratelimit-tokens-limit"] == "1000"
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:00Z", headers["anthropic-ratelimit-requests-reset"]
        )
        assert not [name for name in headers if name.startswith("x-ratelimit")]
        refused = await gateway.http.post("/v1/messages", json=MESSAGE)
        body = refused.json()
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")


async def test_tokens_are_reserved_then_counted(here):
    _, secret = here.key(tpm=100)
    async with here.gateway(secret) as gateway:
        too_much = await gateway.chat("good", max_tokens=101)
        error = too_much.json()["error"]
        assert too_much.status_code == 429 and "Request too large" in error["message"]
        assert error["type"] == "tokens" and too_much.headers["x-should-retry"] == "false"
        served = 0
        while (answer := await gateway.chat("good", max_tokens=30)).status_code == 200:
            served += 1
        assert answer.status_code == 429 and answer.json()["error"]["type"] == "tokens"
        # A request reserves 30 and a few; what it really used, TOKENS, is what counts.
        assert served == (100 - 42) // TOKENS + 1
    assert use(here)["tpm"] == (served * TOKENS, 0)


async def test_an_answer_without_a_limit_reserves_a_bounded_one(here):
    _, secret = here.key(tpm=4000)
    async with here.gateway(secret) as gateway:
        assert (await gateway.chat("good")).status_code == 429
        assert (await gateway.chat("good", max_tokens=100)).status_code == 200


async def test_requests_at_once(here, up):
    _, secret = here.key(concurrency=2)
    async with here.gateway(secret) as gateway:
        running = [asyncio.create_task(gateway.chat("waits", stream=True)) for _ in range(2)]
        while len(up.seen) < 2:
            await asyncio.sleep(0.01)
        refused = await gateway.chat("good")
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert "concurrent requests: Limit 2" in refused.json()["error"]["message"]
        up.release.set()
        assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
        for _ in range(5):
            assert (await gateway.chat("good")).status_code == 200
    assert use(here)["concurrency"] == (0, 0)


@pytest.mark.parametrize("kind", ["usd_day", "usd_month", "usd_total"])
async def test_a_budget_that_is_used_up_is_402(here, kind, up):
    """The scripted model costs $1 a million: 1,000 nano-USD a token."""
    _, secret = here.key(**{kind: 60_000})
    async with here.gateway(secret) as gateway:
        served = 0
        while (answer := await gateway.chat("good", max_tokens=10)).status_code == 200:
            served += 1
        error = answer.json()["error"]
        assert answer.status_code == 402
        assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers
        theirs = await gateway.http.post("/v1/messages", json=MESSAGE | {"max_tokens": 40})
        assert theirs.status_code == 402 and theirs.json()["error"]["type"] == "billing_error"
        spent = sum(row.cost_nusd or 0 for row in gateway.journal.closed)
        assert spent == served * TOKENS * 1000 <= 60_000
        ends_ms = period(kind, here.ahead.clock().now_ms()).end_ms
        if ends_ms is not None:
            here.ahead.by_s += (ends_ms - here.ahead.clock().now_ms()) / 1000 + 1
            assert (await gateway.chat("good", max_tokens=10)).status_code == 200
    if ends_ms is None:
        assert use(here)[kind] == (spent, 0)


async def test_the_keys_of_a_project_share_its_limits(here):
    _, first = here.key("a", project="team", project_rpm=4)
    _, second = here.key("b", project="team", rpm=1)
    async with here.gateway() as gateway:

        async def ask(secret: str) -> int:
            gateway.http.headers["authorization"] = f"Bearer {secret}"
            return (await gateway.chat("good")).status_code

        assert [await ask(second) for _ in range(2)] == [200, 429]  # by its own limit
        assert [await ask(first) for _ in range(4)] == [200, 200, 200, 429]  # by the project's
    assert use(here)["rpm"] == (4, 0)


async def test_a_request_that_fails_or_leaves_gives_its_reservation_back(here, up):
    _, secret = here.key(tpm=10_000, usd_day=10_000_000, concurrency=5)
    async with here.gateway(secret) as gateway:
        assert (await gateway.chat("broken", max_tokens=50)).status_code == 502
        body = MESSAGE | {"model": "waits", "stream": True}
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            await anext(answer.aiter_lines())  # and leave
        await up.left.wait()
        while len(gateway.journal.closed) < 2:
            await asyncio.sleep(0.01)
        assert gateway.journal.closed[-1].status == "cancelled"
    found = use(here)
    assert found["concurrency"] == (0, 0)
    assert found["tpm"][1] == found["usd_day"][1] == 0
    assert found["tpm"][0] == sum(r.in_tok + r.out_tok for r in gateway.journal.closed)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["uncounted", "zeros"])
async def test_tokens_that_nobody_told_are_what_was_reserved(here, model, stream):
    """$1 a million: a reservation of 3 + 30 tokens is 33,000 nano-USD. What the backend turned away
    is nobody's cost."""
    _, secret = here.key(tpm=1000, usd_day=10**9)
    async with here.gateway(secret, kind="openai") as gateway:
        assert (await gateway.chat(model, max_tokens=30, stream=stream)).status_code == 200
        assert gateway.journal.row.cost_nusd is None
        assert (await gateway.chat("busy", max_tokens=30, stream=stream)).status_code == 429
        assert gateway.journal.closed[-1].cost_nusd == 0
        asked = len(b'[{"role":"user","content":"hi"}]')
    reserved = -(-asked // 4) + 30
    tokens, dollars = use(here)["tpm"], use(here)["usd_day"]
    assert dollars == (tokens[0] * 1000, 0) and tokens[1] == 0
    assert abs(tokens[0] - reserved) <= 4


async def test_without_limits_nothing_is_asked_of_the_store(here):
    _, secret = here.key()
    async with here.gateway(secret) as gateway:
        answer = await gateway.chat("good")
        assert answer.status_code == 200
        assert not [name for name in answer.headers if "ratelimit" in name]
    engine = connect(here.url)
    with engine.connect() as connection:
        assert connection.execute(select(limit_usage)).all() == []
    engine.dispose()


async def test_a_limit_that_cannot_be_checked_lets_nobody_in(here, monkeypatch, up):
    """The store fails: 503 for keys with limits, and no harm to those without."""
    _, limited = here.key("limited", rpm=100)
    _, free = here.key("free")

    def away(*_):
        raise OSError("the database is away")

    monkeypatch.setattr(Leases, "exchange", away)
    async with here.gateway(limited) as gateway:
        answer = await gateway.chat("good")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "limits_unavailable"
        assert answer.headers["retry-after"] == "1" and up.seen == []
        theirs = await gateway.http.post("/v1/messages", json=MESSAGE)
        assert theirs.status_code == 529 and theirs.json()["error"]["type"] == "overloaded_error"
        gateway.http.headers["authorization"] = f"Bearer {free}"
        assert (await gateway.chat("good")).status_code == 200


async def test_a_new_limit_is_seen_by_a_running_gateway(here):
    key, secret = here.key(rpm=1)
    async with here.gateway(secret) as gateway:
        assert [(await gateway.chat("good")).status_code for _ in range(2)] == [200, 429]
        store = key_store(here.url)
        store.set_limits(key_owner(key.id), {"rpm": 3})
        store.close()
        here.ahead.by_s += 4
        assert [(await gateway.chat("good")).status_code for _ in range(3)] == [200, 200, 429]


async def test_embeddings_reserve_no_answer(here):
    _, secret = here.key(tpm=50)
    async with here.gateway(secret, kind="openai") as gateway:
        body = {"model": "good", "input": "some words"}
        answer = await gateway.http.post("/v1/embeddings", json=body)
        assert answer.status_code == 200
    assert use(here)["tpm"] == (3, 0)


async def test_a_budget_needs_a_price(here, up):
    """On somebody else's servers; our own engine costs what its pool costs."""
    _, budget = here.key("b", usd_day=10**9)
    _, other = here.key("o", tpm=10**6)
    async with here.gateway(budget, kind="openai") as gateway:
        refused = await gateway.chat("tools")
        error = refused.json()["error"]
        assert refused.status_code == 403
        assert (error["code"], error["param"]) == ("price_unknown", "model") and up.seen == []
        assert (await gateway.chat("good")).status_code == 200
        gateway.http.headers["authorization"] = f"Bearer {other}"
        assert (await gateway.chat("tools")).status_code == 200
    async with here.gateway(budget) as gateway:
        assert (await gateway.chat("tools")).status_code == 200


async def test_every_surface_is_limited(here):
    _, secret = here.key(rpm=1)
    async with here.gateway(secret, kind="openai") as gateway:
        assert (await gateway.chat("good")).status_code == 200
        turns = {"messages": MESSAGE["messages"], "max_tokens": 9}
        for path, body in (
            ("chat/completions", turns),
            ("messages", turns),
            ("completions", {"prompt": "x"}),
            ("responses", {"input": "x"}),
            ("embeddings", {"input": "x"}),
        ):
            answer = await gateway.http.post(f"/v1/{path}", json={"model": "good"} | body)
            assert answer.status_code == 429, path
        free = await gateway.http.post("/v1/messages/count_tokens", json=MESSAGE)
        assert free.status_code == 200
