"""Calls of an unconstrained backend, up to the row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.conftest import StartGateway
from tests.gateway.scripts import Upstream

UNCONSTRAINED = {"constrained": False, "call_retries": 1}


def tools(**weather: Any) -> list[dict[str, Any]]:
    parameters = {"type": "object"} | weather
    return [
        {"type": "function", "function": {"name": "weather", "parameters": parameters}},
        {"type": "function", "function": {"name": "now"}},
    ]


def body(model: str, stream: bool, **weather: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": model, "stream": stream, "messages": messages, "tools": tools(**weather)}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_mended_call_is_told_in_the_row(start: StartGateway, stream: bool):
    async with start(backend=UNCONSTRAINED) as gateway:
        answer = await gateway.http.post("/v1/chat/completions", json=body("agent", stream))
        assert answer.status_code == 200
        assert "weather" in answer.text
        row = gateway.journal.row
    assert (row.tool_calls, row.tool_calls_valid, row.tool_calls_repaired) == (2, 2, 1)
    assert row.status == "ok"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_stays_wrong_is_an_error_in_the_surfaces_shape(
    start: StartGateway, up: Upstream, stream: bool
):
    async with start(backend=UNCONSTRAINED) as gateway:
        answer = await gateway.http.post("/v1/chat/completions", json=body("torn_call", stream))
        row = gateway.journal.row
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "invalid_tool_call"
    assert (row.status, row.error_code, row.tool_calls_valid) == ("error", "invalid_tool_call", 0)
    assert len(up.seen) == 2


@pytest.mark.parametrize("path", ["messages", "responses"])
@pytest.mark.parametrize("stream", [True, False])
async def test_every_surface_is_checked(start: StartGateway, up: Upstream, path: str, stream: bool):
    """A Messages request is kept as it came, too, for backends that take it; this one doesn't."""
    tool = {"name": "weather"}
    asked: dict[str, Any] = {"model": "torn_call", "stream": stream}
    if path == "messages":
        asked |= {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        asked["tools"] = [tool | {"input_schema": {"type": "object"}}]
    else:
        asked |= {"input": "hi", "tools": [tool | {"type": "function", "parameters": {}}]}
    async with start(backend=UNCONSTRAINED) as gateway:
        answer = await gateway.http.post(f"/v1/{path}", json=asked)
        row = gateway.journal.row
    assert answer.status_code == 502 or "error" in answer.text
    assert "invalid_tool_call" in answer.text
    assert (row.status, row.error_code) == ("error", "invalid_tool_call")
    assert len(up.seen) == 2


async def test_unchecked_calls_have_no_count_of_mended_ones(start: StartGateway):
    async with start() as gateway:
        answer = await gateway.http.post("/v1/chat/completions", json=body("agent", False))
        assert answer.status_code == 200
        assert gateway.journal.row.tool_calls_repaired is None


@pytest.mark.parametrize(("backend", "known"), [(UNCONSTRAINED, False), ({}, True)])
async def test_calls_that_come_whole_tell_no_time_per_token(
    start: StartGateway, backend: dict[str, Any], known: bool
):
    """They are held until they are checked: the time between their pieces is nobody's."""
    async with start(backend=backend) as gateway:
        await gateway.http.post("/v1/chat/completions", json=body("only_calls", True))
        row = gateway.journal.row
    assert row.status == "ok" and row.tool_calls == 1 and row.ttft_ms is not None
    assert (row.tpot_ms is not None) is known
