"""A backend that speaks Messages: another gateway, whose own answers are the truth."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from aiohttp import web

from agentspec.settings import BackendSettings, ModelSettings, Settings
from tests.gateway.scripts import AGENT, REFUSALS, TEXT, WEATHER
from tests.gateway.sse import named_events

NAMES = ("good", "agent", "counts", "anthropics_own", "wrong_key", "torn_after_text")
DYING = [f"dies_after_{sent}" for sent in range(1, len(AGENT) + 2)]
SAY_HI: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object"}}]


@pytest.fixture
async def pair(start, monkeypatch):
    """(the server that speaks Messages, the gateway before it, whose names begin "my-")."""
    monkeypatch.setenv("THEIR_KEY", "their-secret")
    async with contextlib.AsyncExitStack() as stack:
        far = await stack.enter_async_context(start())
        account = BackendSettings(kind="anthropic", url=far.url, api_key_env="THEIR_KEY")
        models = {
            f"my-{name}": ModelSettings(backends=["far"], upstream_name=name)
            for name in (*NAMES, *DYING)
        }
        settings = Settings(backends={"far": account}, models=models)
        near = await stack.enter_async_context(start(settings=settings))
        yield far, near


async def post(gateway, model: str, headers: Any = None, **more: Any):
    body = {"model": model, "max_tokens": 100, "messages": SAY_HI, "tools": TOOLS} | more
    return await gateway.http.post("/v1/messages", json=body, headers=headers)


def without_ids(text: str) -> list[dict[str, Any]]:
    events = named_events(text)
    for event in events:
        event.get("message", {}).pop("id", None)
        block = event.get("content_block", {})
        if block.get("id", "").startswith("toolu_"):
            del block["id"]
    return events


@pytest.mark.parametrize("name", ["good", "agent", "counts"])
async def test_a_stream_arrives_as_the_server_sent_it(pair, name):
    far, near = pair
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    direct = await post(far, name, stream=True, **thinking)
    passed = await post(near, f"my-{name}", stream=True, **thinking)
    assert without_ids(passed.text) == without_ids(direct.text)
    behind, row = far.journal.closed[0], near.journal.row
    for column in ("status", "finish_reason", "in_tok", "cached_tok", "out_tok", "tool_calls"):
        assert getattr(row, column) == getattr(behind, column), column
    assert (row.backend, row.backend_kind) == ("far", "anthropic")


@pytest.mark.parametrize("name", ["good", "agent"])
async def test_a_whole_answer_arrives_as_the_server_sent_it(pair, name):
    far, near = pair
    direct = (await post(far, name)).json()
    passed = (await post(near, f"my-{name}")).json()
    assert (passed["content"][0], passed["usage"]) == (direct["content"][0], direct["usage"])
    assert passed["model"] == name
    assert near.journal.row.in_tok == far.journal.closed[0].in_tok == 12


@contextlib.asynccontextmanager
async def recorder() -> AsyncIterator[tuple[str, list[tuple[dict[str, str], Any]]]]:
    """A stand-in that answers each request with one word, and keeps (headers, body)."""
    seen: list[tuple[dict[str, str], Any]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(({k.lower(): v for k, v in request.headers.items()}, await request.json()))
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": 77})
        content = [{"type": "text", "text": "Yes."}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        ending = {"stop_reason": "end_turn", "stop_sequence": None}
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "theirs"}
        return web.json_response(head | {"content": content, "usage": usage} | ending)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


async def test_the_server_gets_what_the_client_sent(start, monkeypatch):
    monkeypatch.setenv("THEIR_KEY", "their-secret")
    marked = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    headers = {"anthropic-beta": "made-up-2026", "x-api-key": "mine"}
    async with recorder() as (url, seen):
        account = BackendSettings(kind="anthropic", url=url, api_key_env="THEIR_KEY")
        model = ModelSettings(backends=["a"], upstream_name="theirs", aliases=["claude-x"])
        settings = Settings(backends={"a": account}, models={"my": model})
        async with start(settings=settings) as near:
            more = {"system": marked, "unknown": {"a": [1]}, "agentspec": {}}
            whole = (await post(near, "claude-x", headers, **more)).json()
            counted = await near.http.post(
                "/v1/messages/count_tokens", json={"model": "my", "messages": SAY_HI}
            )
    assert whole["content"] == [{"type": "text", "text": "Yes."}]
    assert counted.json() == {"input_tokens": 77}
    told, body = seen[0]
    assert body["system"] == marked and body["unknown"] == {"a": [1]}
    assert (body["model"], body["stream"], "agentspec" in body) == ("theirs", False, False)
    assert (told["anthropic-beta"], told["x-api-key"]) == ("made-up-2026", "their-secret")
    assert told["anthropic-version"] == "2023-06-01" and "authorization" not in told


@pytest.mark.parametrize("model", DYING)
async def test_a_server_that_dies_is_never_taken_for_one_that_ended(pair, model):
    _, near = pair
    events = named_events((await post(near, f"my-{model}", stream=True)).text)
    assert events[-1]["type"] == "error"
    assert "message_stop" not in {event["type"] for event in events}
    assert near.journal.row.status == "error"


@pytest.mark.parametrize("cut", ["message_delta", "content_block_stop"])
async def test_a_stream_that_just_stops_is_broken(start, cut):
    lines = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
    ]
    kinds = [line["type"] for line in lines]
    sent = lines[: kinds.index(cut) + 1]

    async def answer(request: web.Request) -> web.Response:
        text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in sent)
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/messages", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    account = BackendSettings(kind="anthropic", url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    settings = Settings(backends={"a": account}, models={"m": ModelSettings(backends=["a"])})
    async with start(settings=settings) as near:
        events = named_events((await post(near, "m", stream=True)).text)
    await runner.cleanup()
    assert events[: len(sent)] == sent and events[-1]["type"] == "error"
    assert (near.journal.row.status, near.journal.row.in_tok) == ("error", 3)


async def test_errors_are_the_servers_own(pair):
    _, near = pair
    refused = await post(near, "my-anthropics_own")
    status, told = REFUSALS["anthropics_own"]
    assert refused.status_code == status
    assert refused.json() == told | {"request_id": refused.headers["request-id"]}
    key = await post(near, "my-wrong_key")
    assert key.status_code >= 500 and "sk-secret" not in key.text


async def test_the_sdk_folds_it(pair):
    _, near = pair
    client = anthropic.AsyncAnthropic(base_url=near.url, api_key="x", max_retries=0)
    asked: Any = {"model": "my-agent", "max_tokens": 9, "messages": SAY_HI, "tools": TOOLS}
    async with client, client.messages.stream(**asked) as stream:
        folded = await stream.get_final_message()
    assert [block.type for block in folded.content] == ["text", "tool_use", "tool_use"]
    assert folded.content[1].input == WEATHER and folded.stop_reason == "tool_use"


async def test_other_protocols_reach_it_too(pair):
    _, near = pair
    whole = (await near.chat("my-good")).json()
    assert whole["choices"][0]["message"]["content"] == "".join(TEXT)
    assert whole["usage"]["prompt_tokens"] == 12


async def test_what_only_the_vendor_can_serve_reaches_it_and_is_refused_elsewhere(start):
    """A document of a kind that no chat request can hold, a forced tool of its servers."""
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
    said = [{"role": "user", "content": [{"type": "document", "source": pdf}]}]
    search = [{"type": "web_search_20250305", "name": "web_search"}]
    async with recorder() as (url, seen):
        backends = {
            "theirs": BackendSettings(kind="anthropic", url=url),
            "ours": BackendSettings(kind="openai", url=url),
        }
        models = {name: ModelSettings(backends=[name]) for name in backends}
        async with start(settings=Settings(backends=backends, models=models)) as gateway:
            more: Any
            for more in (
                {"messages": said},
                {"tools": search, "tool_choice": {"type": "any"}},
                {"output_config": {"format": {"type": "new_kind"}}},
            ):
                assert (await post(gateway, "theirs", **more)).status_code == 200
                assert seen.pop()[1].items() >= more.items()
                refused = await post(gateway, "ours", **more)
                assert refused.status_code == 400 and not seen
                assert refused.json()["error"]["type"] == "invalid_request_error"
            counted = {"model": "ours", "messages": said}
            refused = await gateway.http.post("/v1/messages/count_tokens", json=counted)
            assert "messages[0].content[0]" in refused.json()["error"]["message"]
