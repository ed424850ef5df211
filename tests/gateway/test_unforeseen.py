"""What nobody foresaw, and what is too deep: an answer in the protocol's shape, and a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec.gateway.surfaces.chat import ChatSurface
from agentspec.gateway.surfaces.messages import MessagesSurface
from agentspec.gateway.surfaces.responses import ResponsesSurface

HI = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "hi"},
    "/v1/responses/compact": {"input": "hi"},
    "/v1/responses/input_tokens": {"input": "hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": HI},
    "/v1/completions": {"prompt": "hi"},
    "/v1/embeddings": {"input": "hi"},
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_that_is_too_deep_is_refused_by_name(gateway, up, path):
    cases = [(200, "metadata"), (964, "metadata"), (964, "tool_choice"), (968, "tools")]
    for levels, field in [*cases, (60_000, "tools")]:
        body = {"model": "good", field: [{"parameters": 0}]} | BODIES[path]
        deep = '{"a":' * levels + "0" + "}" * levels
        raw = json.dumps(body).replace("0}]", deep + "}]")
        answer = await gateway.http.post(path, content=raw)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert f"'{field}[0].parameters'" in error["message"]
    assert up.seen == []
    counted = path.endswith("_tokens")
    assert [row.status for row in gateway.journal.closed] == ([] if counted else ["error"] * 5)


@pytest.mark.parametrize(
    ("path", "surface"),
    [
        ("/v1/chat/completions", ChatSurface),
        ("/v1/responses", ResponsesSurface),
        ("/v1/messages", MessagesSurface),
        ("/v1/messages/count_tokens", MessagesSurface),
    ],
)
async def test_an_error_nobody_foresaw_has_the_shape_and_a_row(gateway, monkeypatch, path, surface):
    async def translate(*_: Any) -> None:
        raise ZeroDivisionError("a fault of ours: sk-secret")

    monkeypatch.setattr(surface, "translate", translate)
    answer = await gateway.http.post(path, json={"model": "good"} | BODIES[path])
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    messages = path.startswith("/v1/messages")
    assert body["error"]["type"] == ("api_error" if messages else "server_error")
    assert "secret" not in answer.text
    if path.endswith("count_tokens"):
        assert gateway.journal.closed == []
        return
    row = gateway.journal.row
    assert (row.status, row.http_status, row.model) == ("error", 500, "good")
    id_ = answer.headers["request-id" if messages else "x-request-id"]
    assert row.id == id_ and gateway.journal.opened == []


async def test_a_body_that_cannot_even_be_read(gateway):
    raw = '{"x": "model", "y":' + "[" * 50_000
    for path in BODIES:
        answer = await gateway.http.post(path, content=raw)
        assert answer.status_code == 400 and "error" in answer.json()
    assert gateway.journal.closed == []


async def test_half_a_character_is_refused_in_clear_words(gateway):
    halves = {"\\ud83d": 400, "\\ude00x": 400, "\\ud83d\\ude00": 200, "\\\\ud83d": 200}
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"):
        for text, status in halves.items():
            raw = json.dumps({"model": "good"} | BODIES[path]).replace('"hi"', f'"{text}"')
            answer = await gateway.http.post(path, content=raw)
            assert answer.status_code == status, (path, text)
            assert status == 200 or "surrogate" in answer.json()["error"]["message"]
