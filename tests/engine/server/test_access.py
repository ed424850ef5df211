"""The engine's key: who is let in, and that the gateway's backend is."""

from __future__ import annotations

import aiohttp
import pytest

from agentspec.backends.engine import EngineBackend
from agentspec.settings import BackendSettings
from agentspec.wire.access import Guard
from tests.engine.server.fakes import MODEL, says

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", f"/v1/models/{MODEL}"),
    ("POST", "/tokenize"),
    ("GET", "/metrics"),
]
LET_IN = [{"Authorization": "Bearer sesame"}, {"x-api-key": "sesame"}]
KEPT_OUT = [{}, {"Authorization": "Bearer other"}, {"x-api-key": "sesame1"}, {"x-api-key": ""}]


@pytest.fixture
async def url(serve) -> str:
    return (await serve(lambda request: says("hello"), guard=Guard("sesame"))).url


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_asks_for_the_key(url, method, path):
    async with aiohttp.ClientSession() as http:
        for headers in KEPT_OUT:
            async with http.request(method, url + path, json=BODY, headers=headers) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (401, "invalid_api_key"), headers
        for headers in LET_IN:
            async with http.request(method, url + path, json=BODY, headers=headers) as answer:
                assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_its_health_is_open_to_all(url, method):
    async with aiohttp.ClientSession() as http, http.request(method, f"{url}/health") as answer:
        assert answer.status == 200


async def test_the_gateways_backend_sends_the_key_that_its_settings_name(url, monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "sesame")
    backend = EngineBackend("e", BackendSettings(kind="engine", url=url, api_key_env="ENGINE_KEY"))
    try:
        assert [card.id for card in await backend.models()] == [MODEL]
    finally:
        await backend.aclose()
