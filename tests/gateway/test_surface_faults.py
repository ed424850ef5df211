"""The fault matrix turned round: a backend that dies at any point, on surfaces that translate.

Whatever had been sent by then, the stream ends with the surface's error event, never with an end
that a client takes for a whole answer, and never with a call that isn't whole.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.scripts import AGENT, WEATHER
from tests.gateway.sse import named_events

BODIES: dict[str, dict[str, Any]] = {
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}
ENDS = {"response.completed", "response.incomplete", "message_stop", "message_delta"}
FAILED = {"responses": "response.failed", "messages": "error"}


def calls(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The arguments of every call that a client would take for finished."""
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    texts = [i["arguments"] for i in done if i["type"] == "function_call"]
    opened: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            opened[event["index"]] = ""
        elif event["type"] == "content_block_delta" and event["index"] in opened:
            opened[event["index"]] += event["delta"]["partial_json"]
        elif event["type"] == "content_block_stop" and event["index"] in opened:
            texts.append(opened[event["index"]])
    return [json.loads(text) for text in texts]


async def send(gateway, surface: str, model: str, **more: Any):
    body = {"model": model, "stream": True} | BODIES[surface] | more
    return await gateway.http.post(f"/v1/{surface}", json=body)


@pytest.mark.parametrize("surface", ["responses", "messages"])
@pytest.mark.parametrize("sent", range(1, len(AGENT) + 2))
async def test_a_backend_that_dies_after_any_chunk(gateway, surface, sent):
    answer = await send(gateway, surface, f"dies_after_{sent}")
    events = named_events(answer.text)
    kinds = [e["type"] for e in events]
    assert kinds[-1] == FAILED[surface] and kinds.count(FAILED[surface]) == 1
    assert not ENDS & set(kinds)
    whole = calls(events)
    assert whole == ([WEATHER] if sent >= len(AGENT) else [])
    if surface == "responses":
        assert events[-1]["response"]["error"]["code"] == "server_error"
        assert events[-1]["response"]["status"] == "failed"
    row = gateway.journal.row
    assert (row.status, row.surface, row.http_status) == ("error", surface, 200)


@pytest.mark.parametrize("surface", ["responses", "messages"])
@pytest.mark.parametrize(
    "model",
    [
        "no_finish",
        "done_without_finish",
        "garbage",
        "error_chunk",
        "torn_call",
        "gave_up",
        "no_choices",
    ],
)
async def test_an_answer_that_breaks_never_ends_cleanly(gateway, surface, model):
    events = named_events((await send(gateway, surface, model)).text)
    kinds = [e["type"] for e in events]
    assert kinds[-1] == FAILED[surface] and not ENDS & set(kinds)
    assert calls(events) == []
    assert gateway.journal.row.status == "error"


@pytest.mark.parametrize("surface", ["responses", "messages"])
async def test_a_torn_call_in_a_whole_answer_is_an_error(gateway, surface):
    answer = await send(gateway, surface, "torn_call", stream=False)
    assert answer.status_code == 502
    assert "cat" not in answer.text


@pytest.mark.parametrize("surface", ["responses", "messages"])
async def test_a_silent_backend_gets_keepalives_and_then_an_error_event(start, up, surface):
    async with start(server={"keepalive_s": 0.05}) as gateway:
        body = {"model": "silent_then_dies", "stream": True} | BODIES[surface]
        seen = ""
        async with gateway.http.stream("POST", f"/v1/{surface}", json=body) as answer:
            assert answer.status_code == 200
            async for text in answer.aiter_text():
                seen += text
                if ": keepalive" in seen:
                    up.release.set()
    assert seen.startswith(": keepalive\n\n")
    assert named_events(seen)[-1]["type"] == FAILED[surface]


@pytest.mark.parametrize("surface", ["responses", "messages"])
async def test_a_client_that_leaves_ends_the_work(gateway, up, surface):
    body = {"model": "waits", "stream": True} | BODIES[surface]
    async with gateway.http.stream("POST", f"/v1/{surface}", json=body) as answer:
        async for _ in answer.aiter_text():
            break
    await up.left.wait()
    while not gateway.journal.closed:
        await asyncio.sleep(0)
    assert gateway.journal.row.status == "cancelled"
