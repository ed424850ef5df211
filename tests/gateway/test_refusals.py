"""What the gateway refuses by itself: shapes, models, keys, sizes; and that it leaves a row."""

from __future__ import annotations

import asyncio
import json

import pytest

from agentspec.gateway.app import create_app
from agentspec.settings import ServerSettings, Settings, SettingsError

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"messages": []}, 400, "messages", "empty_array"),
        ({"messages": "hi"}, 400, "messages", "invalid_value"),
        ({"messages": [{"content": "hi"}]}, 400, "messages[0].role", "missing_required_parameter"),
        ({"temperature": "warm"}, 400, "temperature", "invalid_value"),
        ({"max_tokens": 1.5}, 400, "max_tokens", "invalid_value"),
        ({"model": "nope"}, 404, "model", "model_not_found"),
    ],
)
async def test_a_bad_field_is_named(gateway, up, change, status, param, code, stream):
    body = {"model": "good", "messages": MESSAGES, "stream": stream} | change
    answer = await gateway.http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert up.seen == []
    row = gateway.journal.row
    assert (row.status, row.http_status, row.model) == ("error", status, body["model"])
    assert gateway.journal.opened == []


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"messages": []}', b"\xff"])
async def test_a_body_that_names_no_model_leaves_no_row(gateway, raw):
    answer = await gateway.http.post("/v1/chat/completions", content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert gateway.journal.closed == []


async def test_deep_nesting_is_refused(gateway):
    deep = "[" * 100_000 + "]" * 100_000
    raw = (
        '{"model":"good","messages":[{"role":"user","content":"x"}],"tool_choice":{"a":@}}'.replace(
            "@", deep
        )
    )
    answer = await gateway.http.post("/v1/chat/completions", content=raw)
    assert answer.status_code == 400


async def test_unknown_parameters_are_accepted(gateway):
    answer = await gateway.chat("good", store=True, reasoning_effort="high", whatever={"x": [1]})
    assert answer.status_code == 200


async def test_unknown_paths_and_methods_answer_in_the_same_shape(gateway):
    for method, path, status in [("GET", "/v2/x", 404), ("GET", "/v1/chat/completions", 405)]:
        answer = await gateway.http.request(method, path)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_the_body_limit_holds_with_and_without_a_length(start, up):
    async def pieces():
        for _ in range(64):
            yield b"x" * 1024

    async with start(server={"max_body_bytes": 4096}) as gateway:
        for content in (b"x" * 65536, pieces()):
            answer = await gateway.http.post("/v1/chat/completions", content=content)
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == "request_too_large"
        assert (await gateway.chat("good")).status_code == 200
    assert len(up.seen) == 1


async def test_an_endless_body_is_cut_off(start):
    """A client that goes on sending is answered after a bounded amount, not when it is finished."""
    async with start(server={"max_body_bytes": 4096}) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(16):
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()


async def test_a_compressed_body_is_refused(gateway):
    headers = {"content-encoding": "gzip"}
    answer = await gateway.http.post("/v1/chat/completions", content=b"x", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "content-encoding"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "right"}, 401),
        ({"authorization": "Basic !!"}, 401),
        ({"authorization": "Bearer right"}, 200),
        ({"authorization": "bearer  right"}, 200),
        ({"x-api-key": "right"}, 200),
        ({"authorization": "Basic dTpyaWdodA=="}, 200),  # u:right
    ],
)
async def test_the_key_is_asked_for_on_every_v1_route(start, monkeypatch, up, headers, status):
    monkeypatch.setenv("GATEWAY_KEY", "right")
    async with start(server={"api_key_env": "GATEWAY_KEY"}, kind="engine") as gateway:
        gateway.http.headers.update(headers)
        assert (await gateway.chat("good")).status_code == status
        assert (await gateway.http.get("/v1/models")).status_code == status
        assert (await gateway.http.get("/health")).status_code == 200
    if status == 200:
        scope = up.seen[-1]["agentspec"]["cache_scope"]
        assert scope == gateway.journal.row.key_id and scope.startswith("key-")
        assert "right" not in json.dumps(up.seen)
    else:
        assert up.seen == [] and gateway.journal.closed == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_others_may_not_reach_an_endpoint_without_a_key(host, tmp_path):
    settings = Settings(server=ServerSettings(host=host), data_dir=str(tmp_path))
    with pytest.raises(SettingsError, match=r"server\.api_key_env"):
        create_app(settings)


def test_a_key_that_is_named_must_be_there(tmp_path):
    server = ServerSettings(api_key_env="NOT_SET_ANYWHERE")
    with pytest.raises(SettingsError, match="NOT_SET_ANYWHERE"):
        create_app(Settings(server=server, data_dir=str(tmp_path)))
