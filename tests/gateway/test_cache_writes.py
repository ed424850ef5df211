"""Tokens that a vendor writes to a cache, which it bills apart: counted, told, priced."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from agentspec.backends.foreign import decode, to_usage
from agentspec.settings import BackendSettings, ModelSettings, PriceSettings, Settings
from agentspec.wire.messages_out import usage_body as messages_usage
from agentspec.wire.messages_read import usage_from
from agentspec.wire.responses_out import usage_body as responses_usage

TOLD = {
    "input_tokens": 10,
    "cache_read_input_tokens": 200,
    "cache_creation_input_tokens": 3000,
    "cache_creation": {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 1000},
    "output_tokens": 7,
}
"""As Anthropic's API tells it (docs.claude.com, prompt caching)."""
PRICE = PriceSettings(
    input_usd_per_m=3.0,
    cached_usd_per_m=0.3,
    cache_write_usd_per_m=3.75,
    cache_write_1h_usd_per_m=6.0,
    output_usd_per_m=15.0,
)
COST_NUSD = 10 * 3000 + 2000 * 3750 + 1000 * 6000 + 200 * 300 + 7 * 15000


def test_counts_survive_the_way_through_our_words():
    usage = usage_from(TOLD)
    assert (usage.prompt_tokens, usage.completion_tokens) == (3210, 7)
    back = messages_usage(usage)
    assert back == {name: TOLD[name] for name in back} and len(back) == 4
    details: dict[str, int] = responses_usage(usage)["input_tokens_details"]
    assert details == {"cached_tokens": 200, "cache_write_tokens": 3000}


@pytest.mark.parametrize("told", [{}, {"cache_creation": None}, {"cache_creation": {}}])
def test_of_no_told_age_it_is_the_short_one(told: dict[str, Any]):
    details = usage_from({"cache_creation_input_tokens": 5} | told).prompt_tokens_details
    assert details is not None
    assert (details.cache_write_tokens, details.cache_write_1h_tokens) == (5, 0)


@pytest.mark.parametrize(
    "details",
    [
        {"cached_tokens": 200, "cache_write_tokens": 3000},
        {
            "cached_tokens": 200,
            "cache_creation_tokens": 3000,
            "cache_creation_token_details": {"ephemeral_1h_input_tokens": 1000},
        },
    ],
)
def test_of_servers_that_speak_chat(details: dict[str, Any]):
    counts = {"prompt_tokens": 3210, "completion_tokens": 7, "prompt_tokens_details": details}
    usage = to_usage(decode(json.dumps({"choices": [], "usage": counts}).encode()))
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cache_write_tokens == 3000
    hour = 1000 if "cache_creation_tokens" in details else 0
    assert usage.prompt_tokens_details.cache_write_1h_tokens == hour


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("priced", [True, False])
async def test_the_row_and_its_cost(start, stream: bool, priced: bool):
    price = PRICE
    if not priced:
        price = PriceSettings(input_usd_per_m=3.0, cached_usd_per_m=0.3, output_usd_per_m=15.0)
    async with _vendor() as url:
        account = BackendSettings(kind="anthropic", url=url)
        model = ModelSettings(backends=["a"], upstream_name="theirs", price=price)
        settings = Settings(backends={"a": account}, models={"my": model})
        async with start(settings=settings) as near:
            asked = {"model": "my", "max_tokens": 9, "stream": stream}
            asked["messages"] = [{"role": "user", "content": "Hi"}]
            answer = await near.http.post("/v1/messages", json=asked)
            assert answer.status_code == 200
            row = near.journal.row
    assert (row.in_tok, row.cached_tok, row.out_tok) == (3210, 200, 7)
    assert (row.cache_write_tok, row.cache_write_1h_tok) == (3000, 1000)
    assert row.cost_nusd == (COST_NUSD if priced else None)  # a price that is missing is unknown
    assert row.cost_cached_nusd == 200 * 300 and row.cost_out_nusd == 7 * 15000


@contextlib.asynccontextmanager
async def _vendor() -> AsyncIterator[str]:
    """A stand-in for Anthropic's API. Its stream tells the counts at the start, as theirs does."""
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "theirs"}
    whole |= {"content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"}
    events = [
        {"type": "message_start", "message": whole | {"content": [], "usage": TOLD}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    stream = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)

    async def answer(request: web.Request) -> web.Response:
        if (await request.json()).get("stream"):
            return web.Response(text=stream, content_type="text/event-stream")
        return web.json_response(whole | {"usage": TOLD})

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
