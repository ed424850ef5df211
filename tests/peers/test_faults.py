"""Our engine, llama-server, and llama-server behind litellm as a commercial API, over real HTTP,
with faults on the wire: each time one good answer or one clear error, and a row that tells it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from agentspec.gateway.app import create_app
from agentspec.settings import BackendSettings, ModelSettings, PriceSettings, Settings
from agentspec.settings_routing import RoutingSettings
from agentspec.store.record import RequestRecord
from tests.gateway.serving import ListJournal, running
from tests.peers.proxy import (
    CUT_AFTER_EVENT,
    CUT_AFTER_HEAD,
    CUT_BEFORE,
    CUT_NEAR_END,
    SLOW,
    STATUS,
    Proxy,
    proxied,
)

pytestmark = [
    pytest.mark.peers,
    pytest.mark.model,
    # litellm and what it imports warn of their own matters.
    pytest.mark.filterwarnings("ignore"),
]
NAMES = ("engine", "llama", "paid")
ENGINE_MODEL = "smollm2-135m-instruct"
OUT_USD_PER_M = {"engine": 1.0, "llama": 2.0, "paid": 4.0}
REFUSED = "refused"
PATIENCE_S = 20.0


@dataclass
class World:
    http: httpx.AsyncClient
    proxies: dict[str, Proxy]
    journal: ListJournal

    async def ask(self, model: str, *, stream: bool, **more: object) -> httpx.Response:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count from one to nine."}],
            "max_tokens": 12,
            "temperature": 0,
            "stream": stream,
        }
        return await self.http.post("/v1/chat/completions", json=body | more)

    async def breaks(self, name: str, fault: str, status: int = 500) -> None:
        proxy = self.proxies[name]
        if fault == REFUSED:
            await proxy.refuse()
        else:
            proxy.fault, proxy.status = fault, status

    async def all_whole(self, count: int) -> None:
        """The proxies have passed on so many whole answers, and no more."""
        async with asyncio.timeout(10):
            while sum(proxy.whole for proxy in self.proxies.values()) < count:
                await asyncio.sleep(0.01)
        assert sum(proxy.whole for proxy in self.proxies.values()) == count

    @property
    def asked(self) -> dict[str, int]:
        return {name: proxy.asked for name, proxy in self.proxies.items()}


def settings(proxies: dict[str, Proxy], slow_s: float, policy: str = "fixed") -> Settings:
    kinds = {"engine": "engine", "llama": "llamacpp", "paid": "litellm"}
    backends = {
        name: BackendSettings(
            kind=kinds[name],
            url=proxies[name].url + ("/v1" if name == "paid" else ""),
            first_byte_timeout_s=slow_s,
            api_key_env="PEERS_TEST_KEY" if name == "paid" else None,
            price=PriceSettings(
                input_usd_per_m=0.0, cached_usd_per_m=0.0, output_usd_per_m=OUT_USD_PER_M[name]
            ),
        )
        for name in NAMES
    }
    names = {"engine": ENGINE_MODEL, "llama": "m", "paid": "openai/m"}
    models = {name: ModelSettings(backends=[name], upstream_name=names[name]) for name in NAMES} | {
        "chain": ModelSettings(backends=list(NAMES), upstream_names=names)
    }
    routing = RoutingSettings(policy=policy, poll_s=600.0, learn_rows=0)  # type: ignore[arg-type]
    return Settings(backends=backends, models=models, routing=routing)


@pytest.fixture
async def world(engine_port, llama_port, monkeypatch, tmp_path) -> AsyncIterator[World]:
    async with make(engine_port, llama_port, monkeypatch, str(tmp_path), PATIENCE_S) as world:
        yield world


@contextlib.asynccontextmanager
async def make(
    engine_port: int,
    llama_port: int,
    monkeypatch,
    folder: str,
    slow_s: float,
    policy: str = "fixed",
) -> AsyncIterator[World]:
    monkeypatch.setenv("PEERS_TEST_KEY", "sk-none")
    async with contextlib.AsyncExitStack() as stack:
        proxies = {
            name: await stack.enter_async_context(
                proxied(engine_port if name == "engine" else llama_port)
            )
            for name in NAMES
        }
        used, journal = settings(proxies, slow_s, policy), ListJournal()
        used.data_dir = folder
        url = await stack.enter_async_context(running(create_app(used, journal=journal)))
        client = httpx.AsyncClient(base_url=url, timeout=120, trust_env=False)
        http = await stack.enter_async_context(client)
        yield World(http, proxies, journal)


def said(answer: httpx.Response, *, stream: bool) -> str:
    """The text of a good answer; fails where it is none."""
    assert answer.status_code == 200, answer.text
    if not stream:
        body = answer.json()
        assert body["choices"][0]["finish_reason"] in ("stop", "length")
        return body["choices"][0]["message"]["content"]
    events = [e.removeprefix("data: ") for e in answer.text.strip().split("\n\n")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(e) for e in events[:-1] if not e.startswith(":")]
    ends = [c["finish_reason"] for x in chunks for c in x["choices"] if c.get("finish_reason")]
    assert len(ends) == 1 and ends[0] in ("stop", "length")
    return "".join(c["delta"].get("content") or "" for x in chunks for c in x["choices"])


def failure(answer: httpx.Response, *, stream: bool) -> dict:
    """The one error of an answer that failed; fails where it looks whole."""
    if answer.status_code != 200:
        return answer.json()["error"]
    assert stream and "[DONE]" not in answer.text
    events = [e for e in answer.text.strip().split("\n\n") if e.startswith("data: ")]
    errors = [json.loads(e[6:])["error"] for e in events if '"error"' in e]
    assert len(errors) == 1 and '"error"' in events[-1]
    return errors[0]


def check_ok(row: RequestRecord, backend: str, *, unclear: bool = False) -> None:
    """A row that tells of one answer, from that backend, at its price. unclear: one that was asked
    before broke off without a word, and may have billed anything."""
    assert (row.status, row.backend, row.decision["chosen"]) == ("ok", backend, backend)
    assert row.out_tok > 0 and row.token_source == "engine"
    cost_nusd = round(row.out_tok * OUT_USD_PER_M[backend] * 1000)
    assert row.cost_out_nusd == cost_nusd and row.cost_nusd == (None if unclear else cost_nusd)


EARLY = [REFUSED, "429", "500", CUT_BEFORE, CUT_AFTER_HEAD]
LATE = [CUT_AFTER_EVENT, CUT_NEAR_END]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_without_faults_each_answers_alone(world: World, stream: bool):
    for name in NAMES:
        assert said(await world.ask(name, stream=stream), stream=stream)
        check_ok(world.journal.closed[-1], name)
    assert world.asked == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", EARLY)
@pytest.mark.parametrize("broken", [1, 2])
async def test_an_early_fault_is_answered_by_the_next(
    world: World, fault: str, broken: int, stream: bool
):
    """The first one or two of the chain fail before their first byte: the next answers, once."""
    for name in NAMES[:broken]:
        status = int(fault) if fault.isdigit() else 500
        await world.breaks(name, STATUS if fault.isdigit() else fault, status)
    answer = await world.ask("chain", stream=stream)
    assert said(answer, stream=stream)
    check_ok(world.journal.row, NAMES[broken], unclear=fault in (CUT_BEFORE, CUT_AFTER_HEAD))
    tries = world.journal.row.decision["attempts"]
    assert [a["backend"] for a in tries] == list(NAMES[: broken + 1])  # type: ignore[index]
    assert all("error" in a for a in tries[:-1]) and "error" not in tries[-1]  # type: ignore[index]
    assert world.journal.row.attempts == broken + 1
    await world.all_whole(1)
    tried_once = dict.fromkeys(NAMES[:broken], 0 if fault == REFUSED else 1)
    after = dict.fromkeys(NAMES[broken + 1 :], 0)
    assert world.asked == tried_once | {NAMES[broken]: 1} | after


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", [*EARLY, *LATE])
@pytest.mark.parametrize("name", NAMES)
async def test_a_fault_without_anybody_else_is_one_clear_error(
    world: World, name: str, fault: str, stream: bool
):
    if fault in LATE and not stream:
        pytest.skip("an answer in one piece has no events")
    world.proxies[name].retry_after = "60"
    status = int(fault) if fault.isdigit() else 500
    await world.breaks(name, STATUS if fault.isdigit() else fault, status)
    answer = await world.ask(name, stream=stream)
    if name == "paid" and fault == CUT_NEAR_END and "[DONE]" in answer.text:
        return  # litellm takes the answer, all of which is there, for whole
    error = failure(answer, stream=stream)
    row = world.journal.row
    assert error["message"] and (row.status, row.error_code) == ("error", error["code"])
    assert row.backend == name and row.http_status == answer.status_code
    assert world.proxies[name].whole == 0
    if fault == "429":
        assert answer.status_code == 429 and answer.headers["retry-after"] == "60"
    if fault in ("429", REFUSED):
        assert row.cost_nusd == 0 and world.asked[name] <= 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_silent_server_is_given_up_in_time(
    engine_port, llama_port, monkeypatch, tmp_path, stream
):
    async with make(engine_port, llama_port, monkeypatch, str(tmp_path), 3.0) as world:
        await world.breaks("engine", SLOW)
        assert said(await world.ask("chain", stream=stream), stream=stream)
        check_ok(world.journal.row, "llama", unclear=True)
        await asyncio.wait_for(world.proxies["engine"].left.wait(), 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_deadline_ends_the_call_upstream(world: World, name: str, stream: bool):
    await world.breaks(name, SLOW)
    answer = await world.ask(name, stream=stream, agentspec={"deadline_ms": 300})
    error = failure(answer, stream=stream)
    assert error["code"] == "deadline_exceeded" and answer.status_code == 504
    await asyncio.wait_for(world.proxies[name].left.wait(), 10)
    assert world.asked[name] == 1 and world.journal.row.status == "error"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_leaves_ends_the_call_upstream(world: World, name: str, stream: bool):
    task = asyncio.create_task(world.ask(name, stream=stream, max_tokens=1500))
    async with asyncio.timeout(60):
        while not world.proxies[name].relayed:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(world.proxies[name].left.wait(), 20)
    async with asyncio.timeout(20):
        while not world.journal.closed:
            await asyncio.sleep(0.01)
    assert (world.journal.row.status, world.journal.row.http_status) == ("cancelled", 499)


async def test_a_full_outage_is_not_made_worse(world: World):
    for name in NAMES:
        await world.breaks(name, STATUS, 500)
    for _ in range(60):
        error = failure(await world.ask("chain", stream=False), stream=False)
        assert "Broken on purpose" in error["message"]
    assert sum(world.asked.values()) <= 66
    assert len(world.journal.closed) == 60
    tried = sum(row.attempts for row in world.journal.closed)
    assert tried == sum(world.asked.values())
    assert all(row.cost_nusd == 0 for row in world.journal.closed)


async def test_learned_routing_over_the_three(engine_port, llama_port, monkeypatch, tmp_path):
    """Predictions, chances and choice stand in each row; the dearest gets what it costs to know."""
    async with make(
        engine_port, llama_port, monkeypatch, str(tmp_path), PATIENCE_S, "learned"
    ) as world:
        for turn in range(24):
            answer = await world.ask("chain", stream=True, prompt_cache_key=f"s{turn // 4}")
            assert said(answer, stream=True)
        await world.all_whole(24)
    rows = world.journal.closed
    assert len(rows) == 24
    for row in rows:
        weighed = [c for c in row.decision["candidates"] if c.get("chance") is not None]  # type: ignore[attr-defined]
        assert {c["backend"] for c in weighed} == set(NAMES)
        assert sum(c["chance"] for c in weighed) == pytest.approx(1.0, abs=1e-4)
        chances = {c["backend"]: c["chance"] for c in weighed}
        assert row.decision["propensity"] == pytest.approx(chances[row.backend], abs=1e-5)
        assert all(c["predicted"]["ttft_ms"] > 0 for c in weighed)
