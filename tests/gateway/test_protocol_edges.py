"""Fields, paths and headers at the edges of the protocols, as their vendors answer them."""

from __future__ import annotations

import base64
import json
from typing import Any

import openai
import pytest

from agentspec.gateway.surfaces.compaction import CUT
from agentspec.settings import BackendSettings, ModelSettings, Settings
from tests.gateway.scripts import REFUSALS
from tests.gateway.sse import named_events

HI = [{"role": "user", "content": "hi"}]
LIMITED = {"model": "good", "messages": HI, "max_tokens": 9}


async def test_a_failed_response_has_integer_counts(gateway):
    for model in ("dies", "torn_call", "error_chunk"):
        asked = {"model": model, "input": "hi", "stream": True}
        events = named_events((await gateway.http.post("/v1/responses", json=asked)).text)
        assert events[0]["response"]["usage"] is None
        assert events[-1]["type"] == "response.failed"
        usage = events[-1]["response"]["usage"]
        assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"] == 0
        assert type(usage["input_tokens_details"]["cached_tokens"]) is int
        assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int


async def test_every_error_has_one_id_in_header_and_body(gateway):
    post, get = gateway.http.post, gateway.http.get
    version = {"anthropic-version": "2023-06-01"}
    for answer, status, kind in [
        (await post("/v1/messages", json=LIMITED | {"messages": 3}), 400, "invalid_request_error"),
        (await post("/v1/messages", json=LIMITED | {"model": "no"}), 404, "not_found_error"),
        (await post("/v1/messages", content=b"x", headers={"content-encoding": "gzip"}), 400,
         "invalid_request_error"),
        (await post("/v1/messages", content=b"{}", headers={"origin": "null"}), 403,
         "permission_error"),
        (await post("/v1/messages/count_tokens", json={"model": "good"}), 400,
         "invalid_request_error"),
        (await post("/v1/messages/nowhere", json={}), 404, "not_found_error"),
        (await get("/v1/messages"), 405, "invalid_request_error"),
        (await get("/v1/models/none", headers=version), 404, "not_found_error"),
        (await post("/v1/messages", json=LIMITED | {"model": "broken"}), 502, "api_error"),
    ]:  # fmt: skip
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
        assert answer.json()["request_id"] == answer.headers["request-id"] != ""
    for answer in [
        await post("/v1/responses", json={"model": "good"}),
        await post("/v1/chat/completions", content=b"{"),
        await get("/v1/chat/completions"),
        await get("/nowhere"),
        await get("/v1/responses/resp_unknown"),
    ]:
        assert answer.status_code in (400, 404, 405) and answer.headers["x-request-id"]
    counted = await post("/v1/messages/count_tokens", json={"model": "good", "messages": HI})
    assert counted.headers["request-id"]


@pytest.mark.parametrize("model", ["dies", "torn_after_text"])
async def test_a_broken_stream_of_messages_has_the_headers_id(gateway, model):
    answer = await gateway.http.post(
        "/v1/messages", json=LIMITED | {"model": model, "stream": True}
    )
    last = named_events(answer.text)[-1]
    assert last["type"] == "error"
    assert last["request_id"] == answer.headers["request-id"] == gateway.journal.row.id


async def test_refused_credentials_have_an_id_too(start, monkeypatch):
    monkeypatch.setenv("GATEWAY_KEY", "right")
    server = {"api_key_env": "GATEWAY_KEY", "max_body_bytes": 4096}
    async with start(server=server) as gateway:
        post = gateway.http.post
        refused = await post("/v1/messages", json=LIMITED)
        assert refused.status_code == 401
        assert refused.json()["request_id"] == refused.headers["request-id"]
        assert (await post("/v1/responses", json={})).headers["x-request-id"]
        assert (await gateway.http.get("/v1/models")).headers["x-request-id"]
        key = {"x-api-key": "right"}
        large = await post("/v1/messages", content=b"x" * 65536, headers=key)
        assert large.status_code == 413
        assert large.json()["request_id"] == large.headers["request-id"]


async def test_one_good_credential_is_enough(start, monkeypatch):
    monkeypatch.setenv("GATEWAY_KEY", "right")
    sent = [("wrong", "right"), ("right", "wrong"), ("right", ""), ("wrong", "bad"), ("wrong", "")]
    statuses = []
    async with start(server={"api_key_env": "GATEWAY_KEY"}) as gateway:
        for bearer, key in sent:
            headers = {"authorization": f"Bearer {bearer}", "x-api-key": key}
            answer = await gateway.http.get("/v1/models", headers=headers)
            statuses.append(answer.status_code)
    assert statuses == [200, 200, 200, 401, 401]


CROSSINGS = [
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://localhost.evil.example:8000"}, 403),
    ({"origin": "http://evil.example:8000", "host": "evil.example:8000"}, 403),
    ({"origin": "https://evil.example", "content-type": "application/json"}, 403),
    ({"content-type": "application/x-www-form-urlencoded"}, 200),
    ({"origin": "http://localhost:3000"}, 200),
    ({"origin": "http://127.0.0.1:8000"}, 200),
    ({"origin": "http://[::1]:8000"}, 200),
    ({"origin": "vscode-webview://1a2b"}, 200),
    ({"content-type": "application/json; charset=utf-8"}, 200),
    ({}, 200),
]


async def test_a_page_of_another_site_cannot_spend(gateway, up):
    raw = json.dumps({"model": "good", "messages": HI})
    for headers, status in CROSSINGS:
        answer = await gateway.http.post("/v1/chat/completions", content=raw, headers=headers)
        assert answer.status_code == status, headers
        assert status == 200 or "error" in answer.json()
    assert len(up.seen) == sum(status == 200 for _, status in CROSSINGS)


async def test_with_a_key_the_origin_is_the_clients_affair(start, monkeypatch):
    monkeypatch.setenv("GATEWAY_KEY", "right")
    async with start(server={"api_key_env": "GATEWAY_KEY"}) as gateway:
        headers = {"origin": "https://ours.example", "x-api-key": "right"}
        body = {"model": "good", "messages": HI}
        answer = await gateway.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200


BORROWED = [
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://gateway.example:8000", "host": "gateway.example:8000"}, 200),
    ({"origin": "http://gateway.example:8000", "host": "gateway.example:9000"}, 403),
    ({"origin": "http://127.0.0.1:3000"}, 200),
    ({}, 200),
]


async def test_a_page_of_another_site_cannot_spend_with_the_browsers_password(
    start, monkeypatch, up
):
    """Whoever opened the dashboard has a browser that sends its password along by itself."""
    monkeypatch.setenv("GATEWAY_KEY", "right")
    raw = json.dumps({"model": "good", "messages": HI})
    async with start(server={"api_key_env": "GATEWAY_KEY"}) as gateway:
        for more, status in BORROWED:
            basic = base64.b64encode(b"me:right").decode()
            headers = {"authorization": f"Basic {basic}", "content-type": "text/plain", **more}
            answer = await gateway.http.post("/v1/chat/completions", content=raw, headers=headers)
            assert answer.status_code == status, more
    assert len(up.seen) == sum(status == 200 for _, status in BORROWED)


async def test_paths_may_end_with_a_slash_and_heads_are_answered(gateway):
    for path, body in [
        ("/v1/chat/completions/", {"messages": HI}),
        ("/v1/responses/", {"input": "hi"}),
        ("/v1/messages/", {"messages": HI, "max_tokens": 9}),
        ("/v1/completions/", {"prompt": "hi"}),
    ]:
        answer = await gateway.http.post(path, json={"model": "good"} | body)
        assert answer.status_code == 200, path
    for path in ("/v1/models", "/v1/models/", "/v1/models/good"):
        assert (await gateway.http.get(path)).status_code == 200
        head = await gateway.http.head(path)
        assert (head.status_code, head.content) == (200, b"")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("messages", {"max_tokens": None}, "max_tokens"),
    ("messages", {"temperature": 1.1}, "temperature"),
    ("messages", {"temperature": -0.1}, "temperature"),
    ("messages", {"tool_choice": {"type": "tool"}, "tools": [{"name": "f", "input_schema": {}}]},
     "tool_choice.name"),
    ("responses", {"conversation": "conv_1"}, "conversation"),
    ("responses", {"conversation": {"id": "conv_1"}}, "conversation"),
    ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
    ("responses", {"background": True}, "background"),
    ("responses", {"truncation": "some"}, "truncation"),
    ("responses", {"include": ["reasoning.encrypted_content", "all"]}, "include[1]"),
    ("responses", {"text": {"format": {"type": "json_schema", "schema": {}}}},
     "text.format.name"),
    ("responses", {"text": {"format": {"type": "json_schema", "name": "a"}}},
     "text.format.schema"),
    ("responses", {"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ("responses", {"tools": [{"type": "custom", "name": "c", "format": {"type": "new"}}]},
     "tools[0].format.type"),
    ("responses", {"tool_choice": "required"}, "tool_choice"),
    ("responses", {"tool_choice": "required", "tools": []}, "tool_choice"),
    ("completions", {"echo": True, "logprobs": 1}, "echo"),
]  # fmt: skip


async def test_what_vendors_refuse_is_refused(gateway, up):
    bodies = {"messages": LIMITED, "responses": {"model": "good", "input": "hi"}}
    for path, fields, named in REFUSED:
        body = bodies.get(path, {"model": "good", "prompt": "hi"}) | fields
        sent = {name: value for name, value in body.items() if value is not None}
        answer = await gateway.http.post(f"/v1/{path}", json=sent)
        assert answer.status_code == 400, (path, fields)
        error = answer.json()["error"]
        assert error["message"].startswith(named) if path == "messages" else error["param"] == named
    assert up.seen == []
    assert [row.status for row in gateway.journal.closed] == ["error"] * len(REFUSED)


async def test_nothing_of_it_is_asked_of_a_count(gateway):
    body = {"model": "good", "messages": HI}
    assert (await gateway.http.post("/v1/messages/count_tokens", json=body)).status_code == 200


async def test_a_response_repeats_what_was_asked(gateway):
    text = {"verbosity": "low", "format": {"type": "json_object"}}
    body = {"model": "good", "input": "hi", "text": text, "truncation": "auto"}
    answer = (await gateway.http.post("/v1/responses", json=body)).json()
    assert answer["text"] == text and answer["truncation"] == "auto"


def says(param: str) -> tuple[int, dict[str, Any]]:
    message = f"Invalid value for '{param}': no."
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": param}}


async def test_a_backends_error_names_the_clients_field(gateway, monkeypatch):
    cases = [
        ("responses", {"input": "hi"}, "max_completion_tokens", "max_output_tokens"),
        ("responses", {"input": "hi", "stream": True}, "response_format", "text.format"),
        ("responses", {"input": HI}, "messages[0].content[0]", "input[0].content[0]"),
        ("responses", {"input": "hi", "tools": [{"type": "function", "name": "f"}]},
         "tools[0].function.parameters", "tools[0].parameters"),
        ("messages", {"messages": HI, "max_tokens": 1}, "stop", "stop_sequences"),
        ("chat/completions", {"messages": HI}, "max_completion_tokens", "max_completion_tokens"),
    ]  # fmt: skip
    for path, body, theirs, ours in cases:
        monkeypatch.setitem(REFUSALS, "good", says(theirs))
        answer = await gateway.http.post(f"/v1/{path}", json={"model": "good"} | body)
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["message"] == f"Invalid value for '{ours}': no."
        assert path == "messages" or error["param"] == ours


async def test_input_items_are_listed_and_cancel_says_why_not(gateway):
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
    async with client:
        call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f",
                "arguments": "{}"}  # fmt: skip
        output = {"type": "function_call_output", "call_id": "a", "output": "ok"}
        given: Any = [{"role": "user", "content": "hi"}, call, output]
        made = await client.responses.create(model="good", input=given)
        listed = await client.responses.input_items.list(made.id, order="asc")
        kinds = [item.type for item in listed.data]
        assert kinds == ["message", "function_call", "function_call_output"]
        assert listed.data[1].id == "fc_1" and len({item.id for item in listed.data}) == 3
        newest = [item.id async for item in client.responses.input_items.list(made.id, limit=1)]
        assert newest == [item.id for item in reversed(listed.data)]
        plain = await client.responses.create(model="good", input="hi")
        (said,) = (await client.responses.input_items.list(plain.id)).data
        assert said.to_dict()["content"] == [{"type": "input_text", "text": "hi"}]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.cancel(made.id)
        assert caught.value.code == "not_background"
        with pytest.raises(openai.NotFoundError):
            await client.responses.input_items.list("resp_none")
        with pytest.raises(openai.BadRequestError):
            await client.responses.input_items.list(made.id, limit=1000)


async def test_a_compaction_has_a_limit(gateway, up):
    for limit, sent in ((None, 2048), (300, 300)):
        body = {"model": "agent", "input": "hi", "max_output_tokens": limit}
        answer = await gateway.http.post("/v1/responses/compact", json=body)
        assert answer.status_code == 200 and up.seen[-1]["max_completion_tokens"] == sent


async def test_counts_leave_out_tools_that_may_not_be_called(gateway, up):
    tool = {"name": "f", "description": "x" * 4000, "input_schema": {"type": "object"}}
    counts = {}
    for choice in ("auto", "none"):
        # The stand-in for vLLM counts nothing: the gateway estimates.
        for model in ("good", "vllm"):
            more = {"tools": [tool], "tool_choice": {"type": choice}}
            body = {"model": model, "messages": HI} | more
            answer = await gateway.http.post("/v1/messages/count_tokens", json=body)
            counts[choice, model] = answer.json()["input_tokens"]
            assert ("tools" in up.seen[-1]) is (choice == "auto")
    assert counts["auto", "vllm"] > 1000 > 100 > counts["none", "vllm"] > 0


async def test_a_pictures_bytes_are_not_counted_as_text(gateway):
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}
    said = {"role": "user", "content": [{"type": "image", "source": source}]}
    body = {"model": "vllm", "messages": [said]}
    answer = await gateway.http.post("/v1/messages/count_tokens", json=body)
    assert answer.headers["x-agentspec-token-count"] == "estimated"
    assert 500 < answer.json()["input_tokens"] < 2000


async def test_a_server_without_text_completions_is_explained(start, up):
    backend = BackendSettings(kind="openai", url=up.url + "/chat_only/v1")
    settings = Settings(backends={"up": backend}, models={"good": ModelSettings(backends=["up"])})
    async with start(settings=settings) as gateway:
        for stream in (False, True):
            body = {"model": "good", "prompt": "hi", "stream": stream}
            answer = await gateway.http.post("/v1/completions", json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "unsupported_model")
            assert "no text completions" in error["message"]
        assert [row.http_status for row in gateway.journal.closed] == [400, 400]


async def test_a_torn_call_is_told_by_its_code_on_every_surface(gateway):
    """Also one that is whole but nested beyond reading; its row is written, too."""
    for path, more in (
        ("responses", {"input": "x"}),
        ("messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        for model in ("torn_after_text", "deep_call"):
            body = {"model": model, "stream": True} | more
            answer = await gateway.http.post(f"/v1/{path}", json=body)
            assert "malformed_tool_call" in answer.text
            assert gateway.journal.closed[-1].error_code == "malformed_tool_call"
        answer = await gateway.http.post(f"/v1/{path}", json=body | {"stream": False})
        assert answer.status_code == 502 and "malformed_tool_call" in answer.text


async def test_a_compaction_that_was_cut_says_so_to_whoever_goes_on(gateway, up):
    body = {"model": "cut_in_call", "input": "x"}
    answer = await gateway.http.post("/v1/responses/compact", json=body)
    assert answer.status_code == 200
    again = {"model": "good", "input": [*answer.json()["output"], {"role": "user", "content": "x"}]}
    await gateway.http.post("/v1/responses", json=again)
    assert up.seen[-1]["messages"][0]["content"].endswith(CUT)


async def test_models_are_paged_as_anthropics_clients_ask(gateway):
    headers = {"anthropic-version": "2023-06-01"}

    async def asked(query: str) -> Any:
        return (await gateway.http.get(f"/v1/models?{query}", headers=headers)).json()

    names = [card["id"] for card in (await asked(""))["data"]]
    first = await asked("limit=2")
    assert [card["id"] for card in first["data"]] == names[:2] and first["has_more"]
    second = await asked(f"limit=1000&after_id={first['last_id']}")
    assert [card["id"] for card in second["data"]] == names[2:] and not second["has_more"]
    back = await asked(f"limit=1&before_id={names[2]}")
    assert [card["id"] for card in back["data"]] == names[1:2] and back["has_more"]
    assert (await asked("limit=0"))["error"]["type"] == "invalid_request_error"
    assert (await asked("after_id=none"))["error"]["type"] == "invalid_request_error"


async def test_half_a_character_is_named_at_the_counts_too(gateway):
    said = rb'"\ud83d", "messages": [{"role": "user", "content": "\ud83d"}]}'
    body = b'{"model": "good", "input": ' + said
    for path in ("responses/input_tokens", "messages/count_tokens", "responses"):
        answer = await gateway.http.post(f"/v1/{path}", content=body)
        assert answer.status_code == 400
        assert "surrogate" in answer.json()["error"]["message"]
