"""What calls were billed that failed before another one answered: it is on their request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    PoolSettings,
    PriceSettings,
    Settings,
)

USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 20,
    "total_tokens": 1020,
    "prompt_tokens_details": {"cached_tokens": 600},
}
DEAR = PriceSettings(input_usd_per_m=10.0, cached_usd_per_m=1.0, output_usd_per_m=50.0)
DEAR_NUSD = 400 * 10_000 + 600 * 1000 + 20 * 50_000
CHEAP = PriceSettings(input_usd_per_m=1.0, cached_usd_per_m=0.1, output_usd_per_m=5.0)
CHEAP_NUSD = DEAR_NUSD // 10

TOOL = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ASKED = {
    "model": "m",
    "messages": [{"role": "user", "content": "Count."}],
    "tools": [{"type": "function", "function": {"name": "count", "parameters": TOOL}}],
}

Script = Callable[[web.Request, bool], Awaitable[web.StreamResponse]]


def calling(arguments: str) -> Script:
    """Answers with one call of ``count``, and its usage."""
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "count", "arguments": arguments}  # type: ignore[assignment]

    async def script(request: web.Request, stream: bool) -> web.StreamResponse:
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
        if not stream:
            return web.json_response(answer | {"choices": [choice], "usage": USAGE})
        delta = {"index": 0, "delta": message | {"tool_calls": [call | {"index": 0}]}}
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
        chunks = [{"choices": [delta]}, {"choices": [end]}, {"choices": [], "usage": USAGE}]
        whole = answer | {"object": "chat.completion.chunk"}
        text = "".join(f"data: {json.dumps(whole | chunk)}\n\n" for chunk in chunks)
        headers = {"content-type": "text/event-stream"}
        return web.Response(text=text + "data: [DONE]\n\n", headers=headers)

    return script


async def dies(request: web.Request, stream: bool) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def refuses(request: web.Request, stream: bool) -> web.StreamResponse:
    return web.json_response({"error": {"message": "full"}}, status=503)


@contextlib.asynccontextmanager
async def serving(script: Script, path: str = "/v1/chat/completions") -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await script(request, bool((await request.json()).get("stream")))

    app = web.Application()
    app.router.add_post(path, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def two(start, first: Script, **more: Any) -> AsyncIterator[Any]:
    """A gateway before two backends; ``first`` is asked before one that answers well."""
    async with serving(first) as dear, serving(calling('{"n": 1}')) as cheap:
        backends = {
            "dear": BackendSettings(kind="openai", url=dear, call_retries=1, **more),
            "cheap": BackendSettings(kind="openai", url=cheap, price=CHEAP),
        }
        models = {"m": ModelSettings(backends=["dear", "cheap"])}
        async with start(settings=Settings(backends=backends, models=models)) as near:
            yield near


async def ask(near: Any, stream: bool) -> int:
    answer = await near.http.post("/v1/chat/completions", json=ASKED | {"stream": stream})
    return answer.status_code


@pytest.mark.parametrize("stream", [False, True])
async def test_wrong_answers_of_another_backend_are_on_the_bill(start, stream: bool):
    async with two(start, calling('{"n": "many"}'), price=DEAR) as near:
        assert await ask(near, stream) == 200
        row = near.journal.row
    assert (row.backend, row.attempts, row.in_tok, row.out_tok) == ("cheap", 2, 1000, 20)
    tried, last = row.decision["attempts"]
    # Asked twice: the wrong answer was told to it once.
    assert tried["tokens"] == {"in_tok": 2000, "out_tok": 40, "cached_tok": 1200}
    assert tried["error"] == "invalid_tool_call" and last == {"backend": "cheap"}
    assert (row.cost_failed_nusd, row.cost_nusd) == (2 * DEAR_NUSD, 2 * DEAR_NUSD + CHEAP_NUSD)
    parts = (row.cost_fresh_nusd, row.cost_cached_nusd, row.cost_out_nusd, row.cost_failed_nusd)
    assert sum(parts) == row.cost_nusd


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("first", "failed"), [(refuses, 0), (dies, None)])
async def test_a_call_that_told_nothing(start, first: Script, failed: int | None, stream: bool):
    """Turned away by a status it cost nothing; broken off it may have cost anything."""
    async with two(start, first, price=DEAR) as near:
        assert await ask(near, stream) == 200
        row = near.journal.row
    assert row.cost_failed_nusd == failed
    assert row.cost_nusd == (None if failed is None else CHEAP_NUSD)
    assert row.cost_fresh_nusd == 400 * 1000  # what is known of it


@pytest.mark.parametrize("pool", [None, PoolSettings(gpus=1, gpu_usd_per_h=2.0)])
async def test_the_time_of_own_machines_is_billed_elsewhere(start, pool: PoolSettings | None):
    for first in (dies, calling('{"n": "many"}')):
        more = {} if pool is None else {"pool": pool}
        async with two(start, first, **more) as near:
            assert await ask(near, False) == 200
            row = near.journal.row
        assert (row.attempts, row.cost_failed_nusd, row.cost_nusd) == (2, 0, CHEAP_NUSD)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_stayed_wrong_costs_what_it_took(start, stream: bool):
    async with serving(calling('{"n": "many"}')) as url:
        alone = BackendSettings(kind="openai", url=url, call_retries=1, price=DEAR)
        models = {"m": ModelSettings(backends=["alone"])}
        async with start(settings=Settings(backends={"alone": alone}, models=models)) as near:
            await ask(near, stream)
            row = near.journal.row
    assert (row.status, row.error_code) == ("error", "invalid_tool_call")
    assert (row.in_tok, row.cached_tok, row.out_tok) == (2000, 1200, 40)
    assert (row.cost_nusd, row.cost_failed_nusd) == (2 * DEAR_NUSD, 0)


async def test_a_vendors_count_stands_at_the_start_of_an_answer_that_broke_off(start):
    """Anthropic tells one output token at first, and all at the end: which did not come."""
    said = "word " * 400
    going = asyncio.Event()

    async def endless(request: web.Request, stream: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        usage = {"input_tokens": 50, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        text = {"type": "content_block_delta", "index": 0}
        for event in (
            {"type": "message_start", "message": message | {"content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            text | {"delta": {"type": "text_delta", "text": said}},
        ):
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await response.write(data.encode())
        await going.wait()
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(endless, "/v1/messages") as url:
        vendor = BackendSettings(kind="anthropic", url=url, price=DEAR)
        models = {"m": ModelSettings(backends=["vendor"])}
        async with start(settings=Settings(backends={"vendor": vendor}, models=models)) as near:
            asked = {"model": "m", "max_tokens": 9000, "stream": True}
            asked["messages"] = [{"role": "user", "content": "Hi"}]
            async with near.http.stream("POST", "/v1/messages", json=asked) as answer:
                async for line in answer.aiter_lines():
                    if "text_delta" in line:
                        going.set()
            row = near.journal.row
    assert (row.status, row.in_tok, row.token_source) == ("error", 50, "estimated")
    assert row.out_tok == len(said) // 4
    assert row.cost_nusd == 50 * 10_000 + row.out_tok * 50_000
