"""Slices in one process against a store in memory: nothing is lost, doubled, or taken too often."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence

import msgspec
import pytest

from agentspec.gateway.clock import Clock
from agentspec.gateway.identity import Identity
from agentspec.gateway.limits import Limits, Wanting, limits_for
from agentspec.gateway.limits_account import Account
from agentspec.gateway.limits_estimate import TOKENS_PER_IMAGE, Prices, estimate
from agentspec.gateway.limits_pump import Pump, StoreAway
from agentspec.gateway.limits_told import duration
from agentspec.settings import BackendSettings, ModelSettings, PoolSettings, Settings
from agentspec.store.budgets import ALWAYS, MOST, Limit
from agentspec.store.cost import Price
from agentspec.store.leases import LEASE_MS, Ask, Grant, Leases, Place, _grant
from agentspec.store.pricer import Pricer
from agentspec.store.record import RequestRecord
from agentspec.wire.chat import ChatRequest, Message, decode_request
from agentspec.wire.errors import AgentspecError


class Time:
    now_s = 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, lambda: self.now_s)


class Store(Leases):
    """The rule of ``Leases`` for one holder, without a database."""

    def __init__(self):
        self.lease_ms = LEASE_MS
        self.used: dict[Place, int] = {}
        self.held: dict[Place, int] = {}
        self.exchanges = 0
        self.away = False
        self.cannot_hold = ""
        self.answers = threading.Event()
        self.answers.set()

    def exchange(self, asks: Sequence[Ask]) -> dict[Place, Grant]:
        self.answers.wait()
        if self.away:
            raise OSError("away")
        self.exchanges += 1
        grants = {}
        for ask in asks:
            if ask.place[0] == self.cannot_hold:
                continue
            self.used[ask.place] = self.used.get(ask.place, 0) + ask.spent
            grants[ask.place] = _grant(ask, self.used[ask.place], 0)
            self.held[ask.place] = ask.held + grants[ask.place].granted
        return grants

    def leave(self) -> None:
        self.held.clear()

    def close(self) -> None:
        pass


class Bench:
    """Limits over a store in memory, and requests of a wished size."""

    def __init__(self, **limits: int):
        self.time, self.store = Time(), Store()
        self.pump = Pump(lambda: self.store, self.time.clock(), beat_s=0.01, wait_s=0.3)
        prices = Prices({}, Pricer(Settings()))
        self.limits = Limits(self.pump, prices, self.time.clock())
        self.identity = Identity(
            "k", "k", None, tuple(Limit("key:k", kind, n) for kind, n in limits.items())
        )

    async def admit(self, id: str, tokens: int = 1) -> str:
        """ "" when it was let in, else the error's code."""
        request = ChatRequest("m", [Message("user", "")], max_tokens=tokens)
        wanting = Wanting("chat", request, {}, ModelSettings(backends=["b"]))
        try:
            await self.limits.admit(id, self.identity, wanting)
        except AgentspecError as error:
            return error.code or "?"
        return ""

    def settle(self, id: str, tokens: int) -> None:
        self.limits.settle(RequestRecord(id=id, ts_ms=0, in_tok=tokens))

    def used(self, kind: str) -> int:
        return sum(n for (_, k, _), n in self.store.used.items() if k == kind)


async def test_what_is_told_is_what_was_used():
    """Many requests at once, of random size, some coming to more than they reserved."""
    rng = random.Random(1)
    bench = Bench(tpm=3000, concurrency=7, rpm=10_000)
    running, spent, admitted, most = set(), 0, 0, 0

    async def one(number: int) -> None:
        nonlocal spent, admitted, most
        reserved, used = rng.randrange(1, 60), rng.randrange(0, 80)
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        if await bench.admit(str(number), reserved):
            return
        running.add(number)
        admitted, most = admitted + 1, max(most, len(running))
        await asyncio.sleep(0.001 * rng.randrange(3))
        running.remove(number)
        spent += used
        bench.settle(str(number), used)

    for wave in range(12):
        await asyncio.gather(*(one(100 * wave + n) for n in range(20)))
        bench.time.now_s += 1  # 12 s in all, within one minute
    await bench.limits.aclose()
    assert bench.used("tpm") == spent and bench.used("concurrency") == 0
    assert bench.used("rpm") == admitted > 20
    assert most <= 7 and spent <= 3000 + 7 * 80
    assert bench.store.held == {}


async def test_most_requests_ask_nobody():
    bench = Bench(rpm=100_000)
    for number in range(300):
        assert await bench.admit(str(number)) == ""
        bench.settle(str(number), 0)
    assert bench.store.exchanges < 40
    await bench.limits.aclose()
    assert bench.used("rpm") == 300


async def test_an_idle_limit_gives_everything_back_and_rests():
    bench = Bench(rpm=1000, concurrency=50)
    for number in range(40):
        assert await bench.admit(str(number)) == ""
    for number in range(40):
        bench.settle(str(number), 0)
    while bench.pump._accounts:
        await asyncio.sleep(0.005)
    assert set(bench.store.held.values()) == {0} and bench.used("rpm") == 40
    assert await bench.admit("again") == ""  # and it wakes up again
    await bench.limits.aclose()


async def test_a_cancelled_wait_reserves_nothing():
    bench = Bench(concurrency=3)
    waiting = asyncio.create_task(bench.admit("a"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [await bench.admit(n) for n in "bcd"] == ["", "", ""]
    assert await bench.admit("e") == "rate_limit_exceeded"
    await bench.limits.aclose()


async def test_a_lease_that_has_ended_covers_nothing():
    """The store is away for longer than the lease: others may have been given the slice."""
    bench = Bench(usd_day=10**9, tpm=10**6)
    for number in range(20):
        assert await bench.admit(str(number), 10) == ""
        bench.settle(str(number), 10)
    bench.store.away = True
    bench.time.now_s += LEASE_MS / 1000 - 0.5
    assert await bench.admit("within") in ("", StoreAway.code)
    bench.time.now_s += 1
    assert await bench.admit("after") == StoreAway.code
    bench.store.away = False
    assert await bench.admit("back") == ""
    bench.settle("back", 10)
    await bench.limits.aclose()
    assert bench.used("tpm") >= 210  # nothing that was used is forgotten


async def test_an_absurd_count_shuts_out_nobody_but_its_own_limit():
    bench = Bench(tpm=1000, rpm=100)
    assert await bench.admit("a") == ""
    bench.settle("a", 10**23)
    assert await bench.admit("b") == "rate_limit_exceeded"
    bench.identity = Identity("o", "o", None, (Limit("key:o", "tpm", 1000),))
    assert await bench.admit("other") == ""
    await bench.limits.aclose()
    assert bench.store.used["key:k", "tpm", 960_000] == MOST


async def test_what_the_store_cannot_hold_shuts_that_limit_alone():
    bench = Bench(tpm=1000)
    bench.store.cannot_hold = "key:k"
    assert await bench.admit("a") == "rate_limit_exceeded"
    bench.identity = Identity("o", "o", None, (Limit("key:o", "tpm", 1000),))
    assert await bench.admit("other") == ""
    await bench.limits.aclose()


async def test_a_store_that_hangs_is_away_and_forgets_nothing():
    """Also while beats pass; what was used meanwhile is told when it answers again."""
    bench = Bench(tpm=1000, concurrency=5)
    assert await bench.admit("a", 10) == ""
    bench.store.answers.clear()
    bench.settle("a", 10)
    assert await bench.admit("b", 600) == StoreAway.code
    many = await asyncio.gather(*(bench.admit(f"c{n}", 600) for n in range(20)))
    assert set(many) == {StoreAway.code}
    await asyncio.sleep(0.1)
    bench.store.answers.set()
    while bench.pump._lock.locked():
        await asyncio.sleep(0.01)
    assert await bench.admit("d", 900) == ""
    bench.settle("d", 7)
    await bench.limits.aclose()
    assert bench.used("tpm") == 17 and bench.store.held == {}


async def test_a_store_that_hangs_holds_up_no_end():
    bench = Bench(tpm=1000)
    assert await bench.admit("a", 10) == ""
    bench.store.answers.clear()
    assert await bench.admit("b", 900) == StoreAway.code
    await bench.limits.aclose()
    bench.store.answers.set()


async def test_a_store_that_is_away_from_the_start():
    bench = Bench(rpm=5)
    bench.store.away = True
    assert await bench.admit("a") == StoreAway.code
    bench.store.away = False
    assert await bench.admit("a") == ""
    await bench.limits.aclose()


async def test_what_has_no_price_before_it_runs_is_held_by_its_budget_all_the_same():
    bench = Bench(usd_total=1000)

    async def one(id: str) -> str:
        found = await bench.admit(id)
        bench.limits.settle(RequestRecord(id=id, ts_ms=0, cost_nusd=400))
        return found

    assert [await one(n) for n in "abcd"] == ["", "", "", "insufficient_quota"]
    await bench.limits.aclose()
    assert bench.used("usd_total") == 1200
    bench = Bench(usd_total=1000)
    bench.store.away = True
    assert await bench.admit("a") == StoreAway.code
    await bench.limits.aclose()
    bench = Bench(usd_total=0)
    assert await bench.admit("a") == "insufficient_quota"
    await bench.limits.aclose()


@pytest.mark.parametrize("pool", [None, PoolSettings(gpus=1, gpu_usd_per_h=2.0)])
async def test_only_our_engine_is_held_by_a_budget_without_a_price(tmp_path, pool):
    """Other servers tell no busy time, so a pool's price says nothing of a request's."""
    settings = Settings(
        data_dir=str(tmp_path),
        backends={
            "other": BackendSettings(kind="openai", url="http://127.0.0.1:9", pool=pool),
            "ours": BackendSettings(kind="engine", url="http://127.0.0.1:9", pool=pool),
        },
        models={
            "m": ModelSettings(backends=["other"]),
            "both": ModelSettings(backends=["ours", "other"]),
            "e": ModelSettings(backends=["ours"]),
        },
    )
    limits = limits_for(settings, Pricer(settings), Time().clock())
    budget = Identity("k", "k", None, (Limit("key:k", "usd_day", 10**9),))

    async def told(model: str) -> str | None:
        request = ChatRequest(model, [Message("user", "")], max_tokens=1)
        wanting = Wanting("chat", request, {}, settings.models[model])
        with pytest.raises(AgentspecError) as refused:
            await limits.admit("a", budget, wanting)
        return refused.value.code

    found = [await told(model) for model in ("m", "both", "e")]
    assert found == ["price_unknown", "price_unknown", StoreAway.code]  # there is no database
    await limits.aclose()


def test_what_comes_to_more_than_estimated_is_reserved_as_it_comes():
    """A slice then lets in as many as it covers; near its end one is let in by its estimate."""
    account = Account(Limit("key:k", "tpm", 1000), ALWAYS, free=1000, until_s=1.0)
    assert account.take(10) == 10
    account.settle(10, 10, 400)  # 40 times its estimate
    assert account.take(10) == 400
    assert account.free == 200 and account.has(10, 0.0)
    assert account.take(10) == 200
    assert not account.has(10, 0.0)
    account.settle(10, 400, 10)
    assert account.ratio == pytest.approx(40 - 3.9)


def test_settling_more_than_was_reserved_is_owed():
    account = Account(Limit("key:k", "tpm", 100), ALWAYS, free=10, until_s=1.0)
    assert account.take(10) == 10
    account.settle(10, 10, 35)
    assert (account.free, account.reserved, account.spent) == (-25, 0, 35)
    account.needed = 5
    ask = account.ask()
    assert (ask.spent, ask.held, ask.need) == (35, 0, 5)  # told once, and owed no longer


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (0.29, "290ms"),
        (0.9989, "999ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (1.0001, "2s"),
        (59.2, "1m0s"),
        (360, "6m0s"),
        (3723, "1h2m3s"),
    ],
)
def test_durations_as_openai_writes_them(seconds, text):
    assert duration(seconds) == text


def ask(content: str, **more: object) -> tuple[ChatRequest, dict[str, msgspec.Raw]]:
    body = {"model": "m", "messages": [{"role": "user", "content": content}], **more}
    raw = msgspec.json.encode(body)
    return decode_request(raw), msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


def test_an_estimate_is_bytes_and_the_limit():
    model = ModelSettings(backends=["b"])
    price = Price(in_nusd_per_m=2_000_000, cached_nusd_per_m=1, out_nusd_per_m=3_000_000)
    found = estimate(*ask("x" * 4000, max_tokens=50, n=2), model, lambda _: price, writes=True)
    assert 1000 <= found.in_tok <= 1020 and found.out_tok == 100
    assert found.nusd == found.in_tok * 2 + 100 * 3
    unlimited = estimate(*ask("x"), model, lambda _: None, writes=True)
    assert unlimited.out_tok == 4096 and unlimited.nusd is None
    small = ModelSettings(backends=["b"], context_tokens=512)
    assert estimate(*ask("x"), small, lambda _: None, writes=True).out_tok == 512
    assert estimate(*ask("x"), small, lambda _: None, writes=False).out_tok == 0


def test_an_image_counts_as_one_not_by_its_bytes():
    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}},
    ]
    request, body = ask("", messages=[{"role": "user", "content": parts}])
    found = estimate(request, body, ModelSettings(backends=["b"]), lambda _: None, writes=False)
    assert TOKENS_PER_IMAGE <= found.in_tok < TOKENS_PER_IMAGE + 50
