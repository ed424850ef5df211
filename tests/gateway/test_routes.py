"""The small routes, and fallback between backends as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter

from agentspec.gateway.app import create_app
from agentspec.routing.watch import Watch
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    PoolSettings,
    ServerSettings,
    Settings,
)
from tests.gateway.scripts import REPORT
from tests.gateway.serving import ListJournal, running


def settings_for(urls: dict[str, str], **models: ModelSettings) -> Settings:
    backends = {n: BackendSettings(kind="openai", url=u) for n, u in urls.items()}
    return Settings(backends=backends, models=models)


async def test_models_tell_their_context(start, up):
    settings = settings_for(
        {"up": up.url},
        good=ModelSettings(backends=["up"]),
        known=ModelSettings(backends=["up"], context_tokens=77),
        renamed=ModelSettings(backends=["up"], upstream_name="good"),
        unheard=ModelSettings(backends=["up"]),
    )
    async with start(settings=settings) as gateway:
        cards = (await gateway.http.get("/v1/models")).json()["data"]
        one = (await gateway.http.get("/v1/models/renamed")).json()
        missing = await gateway.http.get("/v1/models/nope")
    found = {card["id"]: card.get("context_length") for card in cards}
    assert found == {"good": 4096, "known": 77, "renamed": 4096, "unheard": None}
    assert one["max_model_len"] == 4096 and one["object"] == "model"
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"


async def test_the_upstream_name_is_what_the_backend_sees(start, up):
    settings = settings_for(
        {"up": up.url}, mine=ModelSettings(backends=["up"], upstream_name="good")
    )
    async with start(settings=settings) as gateway:
        answer = (await gateway.chat("mine")).json()
        row = gateway.journal.row
    assert up.seen[0]["model"] == "good" and answer["model"] == "mine"
    assert (row.model, row.upstream_model) == ("mine", "good")


async def test_ready_follows_the_backend(start, up):
    async with start(kind="engine") as gateway:
        assert (await gateway.http.get("/ready")).status_code == 200
        up.healthy = False
        assert (await gateway.http.get("/ready")).status_code == 503
        assert (await gateway.http.get("/health")).status_code == 200


async def test_the_entrance_points_on(gateway):
    answer = await gateway.http.get("/")
    assert answer.json() == {"service": "agentspec", "dashboard": "/dashboard", "api": "/v1"}


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics"])
async def test_what_operators_ask_can_be_asked_for_its_head(start, path):
    async with start(kind="engine") as gateway:
        asked = await gateway.http.head(path)
    assert (asked.status_code, asked.content) == (200, b"")


async def test_another_backend_answers_where_the_first_cannot(start, up, free_port, monkeypatch):
    # The first request is to find out by itself, not to be told by the look at all backends.
    monkeypatch.setattr(Watch, "start", lambda self: None)
    dead = f"http://127.0.0.1:{free_port()}"
    settings = settings_for(
        {"dead": dead, "up": up.url}, good=ModelSettings(backends=["dead", "up"])
    )
    async with start(settings=settings) as gateway:
        first = await gateway.chat("good", stream=True)
        second = await gateway.chat("good")
    assert first.status_code == second.status_code == 200
    rows = gateway.journal.closed
    assert [(row.backend, row.attempts) for row in rows] == [("up", 2), ("up", 1)]
    attempts: Any = rows[0].decision["attempts"]
    assert attempts == [{"backend": "dead", "error": "upstream_unreachable"}, {"backend": "up"}]
    reason = str(rows[0].decision["reason"])
    assert reason.startswith("'dead' (first in the configured order) failed")
    assert reason.endswith("(upstream_unreachable); 'up' is next in order")
    assert rows[1].decision["reason"] == "first in the configured order of those available"
    assert "cooling down" in str(rows[1].decision["candidates"])


async def test_a_verdict_or_a_started_answer_is_final(start, up):
    settings = settings_for(
        {"one": up.url, "two": up.url},
        too_long=ModelSettings(backends=["one", "two"]),
        dies=ModelSettings(backends=["one", "two"]),
        broken=ModelSettings(backends=["one", "two"]),
    )
    async with start(settings=settings) as gateway:
        await gateway.chat("too_long")
        await gateway.chat("dies", stream=True)
        assert len(up.seen) == 2
        await gateway.chat("broken", stream=True)
        assert len(up.seen) == 4
    assert [row.attempts for row in gateway.journal.closed] == [1, 1, 2]


async def test_prices_reach_the_row(start, up):
    model = ModelSettings(backends=["up"])
    model.price.input_usd_per_m, model.price.cached_usd_per_m = 3.0, 0.3
    model.price.output_usd_per_m = 15.0
    async with start(settings=settings_for({"up": up.url}, good=model)) as gateway:
        await gateway.chat("good")
    row = gateway.journal.row
    # 4 fresh, 8 cached, 5 out
    assert (row.cost_fresh_nusd, row.cost_cached_nusd, row.cost_out_nusd) == (12_000, 2_400, 75_000)
    assert row.cost_nusd == 89_400 and row.cost_formula == 2


async def test_a_pools_busy_time_and_the_control_window_reach_the_row(start, up, monkeypatch):
    monkeypatch.setitem(REPORT, "window", "off")
    pool = PoolSettings(gpus=8, gpu_usd_per_h=2.5)
    own = BackendSettings(kind="engine", url=up.url, pool=pool)
    settings = Settings(backends={"own": own}, models={"good": ModelSettings(backends=["own"])})
    async with start(settings=settings) as gateway:
        await gateway.chat("good", stream=True)
        await gateway.chat("good")
    for row in gateway.journal.closed:
        # 100 us of prefill, 215 of the rest, at $20 an hour: 50/9 nano-USD a microsecond
        assert (row.cost_fresh_nusd, row.cost_cached_nusd, row.cost_out_nusd) == (556, 0, 1194)
        assert (row.cost_nusd, row.cost_formula) == (1750, 4)
        assert row.spec_window == "off"


async def test_without_any_price_the_cost_is_unknown(start, up):
    async with start(
        settings=settings_for({"up": up.url}, good=ModelSettings(backends=["up"]))
    ) as gateway:
        await gateway.chat("good")
    assert gateway.journal.row.cost_nusd is None and gateway.journal.row.cost_formula == 0


async def test_mounted_pages_are_behind_the_key(monkeypatch, tmp_path):
    import httpx

    router = APIRouter()

    @router.get("/dashboard")
    async def page() -> str:
        return "figures"

    monkeypatch.setenv("GATEWAY_KEY", "right")
    settings = Settings(server=ServerSettings(api_key_env="GATEWAY_KEY"), data_dir=str(tmp_path))
    app = create_app(settings, journal=ListJournal(), mounts=[router])
    async with running(app) as url, httpx.AsyncClient(base_url=url, trust_env=False) as http:
        refused = await http.get("/dashboard")
        shown = await http.get("/dashboard", auth=("anybody", "right"))
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    assert shown.status_code == 200 and shown.json() == "figures"


async def test_the_openai_sdk(gateway):
    import openai

    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(
            model="tools", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async with stream:
            reasons = [chunk.choices[0].finish_reason async for chunk in stream]
        whole = await sdk.chat.completions.create(
            model="good", messages=[{"role": "user", "content": "hi"}]
        )
        models = [model.id async for model in sdk.models.list()]
        broken = await sdk.chat.completions.create(
            model="dies", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        try:
            async with broken:
                async for _ in broken:
                    pass
        except openai.APIError as error:
            assert "broke off" in error.message
        else:
            raise AssertionError("the SDK took a torn stream for a whole one")
    assert reasons[-1] == "tool_calls"
    assert whole.usage and whole.usage.total_tokens == 17
    assert "good" in models
