"""SGLang, vLLM and llama.cpp as backends: what is sent to them, their load, health and window."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agentspec.backends.base import Turn
from agentspec.backends.load import Load, Names, PageReader, TellsLoad, figures
from agentspec.backends.registry import build
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    Settings,
    SettingsError,
    with_defaults,
)
from agentspec.wire.chat import decode_request
from agentspec.wire.errors import UpstreamFailed

SHAPES = Path(__file__).parent / "shapes"
BODY = b'{"model":"mine","messages":[{"role":"developer","content":"x"}]}'


@contextlib.asynccontextmanager
async def serving(pages: dict[str, web.Response]) -> AsyncIterator[str]:
    """A server that answers GETs from a table (anything else: 404)."""

    async def answer(request: web.Request) -> web.Response:
        found = pages.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.Response(status=found.status, body=found.body, content_type=found.content_type)

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def backend(kind: str, pages: dict[str, web.Response]):
    async with serving(pages) as url:
        settings = Settings(
            backends={"b": BackendSettings(kind=kind, url=url)},
            models={"mine": ModelSettings(backends=["b"])},
        )
        made = build(with_defaults(settings))["b"]
        try:
            yield made
        finally:
            await made.aclose()


def page(name: str) -> web.Response:
    return web.Response(text=(SHAPES / name).read_text())


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("vllm", Load(running=8.0, waiting=2.0, kv_used=0.25)),
        ("sglang", Load(running=12.0, waiting=4.0, kv_used=0.61, accepted_length=3.4)),
    ],
)
async def test_load_from_the_metrics_page(kind, found):
    async with backend(kind, {"/metrics": page(f"{kind}_metrics.txt")}) as made:
        assert isinstance(made, TellsLoad) and await made.load() == found
        assert made.kind == kind


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
async def test_a_server_without_its_page_tells_no_load(kind):
    async with backend(kind, {}) as made:
        assert await made.load() is None and not await made.health()


@pytest.mark.parametrize("kind", ["engine", "vllm", "sglang", "llamacpp"])
async def test_a_server_that_is_away_raises(kind):
    settings = Settings(
        backends={"b": BackendSettings(kind=kind, url="http://127.0.0.1:9")},
        models={"mine": ModelSettings(backends=["b"])},
    )
    made = build(with_defaults(settings))["b"]
    with pytest.raises(UpstreamFailed):
        await made.load()
    assert not await made.health()
    await made.aclose()


async def test_llamacpp_tells_slots_and_window():
    slots = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]
    pages = {
        "/slots": web.json_response(slots),
        "/props": web.json_response({"default_generation_settings": {"n_ctx": 4096}}),
        "/v1/models": web.json_response({"data": [{"id": "m", "meta": {"n_ctx_train": 9999}}]}),
        "/health": web.json_response({"status": "ok"}),
    }
    async with backend("llamacpp", pages) as made:
        assert await made.load() == Load(running=1.0)
        assert [card.context_length for card in await made.models()] == [4096]
        assert await made.health()


def test_the_accepted_length_is_that_of_what_came_since():
    reader = PageReader(Names("r", "w", accepted="a_total", drafts="d_total"))

    def length(accepted: float, drafts: float) -> float | None:
        found = reader.read(f"r 1\na_total {accepted}\nd_total {drafts}\n")
        assert found is not None
        return found.accepted_length

    assert length(100, 100) is None  # nothing to compare with
    assert length(150, 120) == 1 + 50 / 20
    assert length(150, 120) is None  # nothing happened
    assert length(3, 2) is None  # the server began anew


def test_a_page_of_something_else_is_no_load():
    assert PageReader(Names("r", "w")).read("<html>r 1</html>") is None
    assert figures('r nonsense\nr{x="1"} 2\nrr 5\n', ["r"]) == {"r": 2.0}


@pytest.mark.parametrize(
    ("kind", "asked"), [("sglang", True), ("vllm", False), ("llamacpp", False), ("openai", False)]
)
def test_what_is_sent(kind, asked):
    settings = Settings(
        backends={"b": BackendSettings(kind=kind, url="http://127.0.0.1:9")},
        models={"mine": ModelSettings(backends=["b"])},
    )
    made = build(with_defaults(settings))["b"]
    import msgspec

    fields = msgspec.json.decode(BODY, type=dict[str, msgspec.Raw])
    turn = Turn("1", decode_request(BODY), fields, "theirs", 9)
    sent = made.upstream_body(turn, stream=True)
    assert ("return_spec_tokens_details" in sent) is asked
    assert b'"system"' in bytes(sent["messages"]) and bytes(sent["model"]) == b'"theirs"'
    assert b"include_usage" in bytes(sent["stream_options"])


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp", "openai"])
def test_a_server_needs_a_url(kind):
    settings = Settings(
        backends={"b": BackendSettings(kind=kind)}, models={"m": ModelSettings(backends=["b"])}
    )
    with pytest.raises(SettingsError, match=r"backends\.b\.url"):
        with_defaults(settings)
