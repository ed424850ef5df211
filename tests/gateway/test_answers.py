"""Good answers: what reaches the client, what reaches the backend, what reaches the ledger."""

from __future__ import annotations

import json

import pytest

from agentspec.store.record import RequestRecord
from tests.gateway.scripts import REPORT, ROOM, TEXT, USAGE

WHOLE = "".join(TEXT)


def events(text: str) -> list[dict]:
    """The JSON events of a stream; the last event must be [DONE]."""
    blocks = [b for b in text.split("\n\n") if b and not b.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(b.removeprefix("data: ")) for b in blocks[:-1]]


def said(chunks: list[dict]) -> str:
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@pytest.mark.parametrize("script", ["good", "split", "lingers"])
async def test_a_stream_arrives_whole(gateway, script):
    answer = await gateway.chat(script, stream=True)
    chunks = events(answer.text)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert said(chunks) == WHOLE
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {c["model"] for c in chunks} == {script}
    assert {c["id"] for c in chunks} == {f"chatcmpl-{answer.headers['x-request-id']}"}


async def test_a_whole_answer(gateway):
    answer = (await gateway.chat("good")).json()
    assert answer["choices"][0]["message"]["content"] == WHOLE
    assert answer["usage"]["prompt_tokens"] == 12
    assert answer["object"] == "chat.completion"
    assert "agentspec" not in answer


async def test_usage_comes_only_to_those_who_asked(gateway):
    silent = events((await gateway.chat("good", stream=True)).text)
    assert all(c["choices"] and "usage" not in c for c in silent)
    asked = await gateway.chat("good", stream=True, stream_options={"include_usage": True})
    *content, last = events(asked.text)
    assert all("usage" not in c for c in content)
    assert last["choices"] == [] and last["usage"]["total_tokens"] == 17
    assert "agentspec" not in last


async def test_the_report_comes_only_to_those_who_sent_the_object(start):
    async with start(kind="engine") as gateway:
        whole = (await gateway.chat("good", agentspec={"arm": "on"})).json()
        assert whole["agentspec"]["hist"] == [1, 0, 2]
        streamed = await gateway.chat("good", stream=True, agentspec={})
        last = events(streamed.text)[-1]
        assert last["agentspec"]["steps"] == 3 and "usage" not in last


async def test_the_body_goes_on_as_it_was(gateway, up):
    """Unknown fields, number spelling and key order survive; only our four keys are replaced."""
    raw = (
        b'{"temperature": 1.0, "model": "good", "seed": 12345678901234567890123,'
        b' "messages": [{"role": "user", "content": "hi", "weird": [1, null]}],'
        b' "custom": {"z": 1, "a": 2}, "agentspec": {"cache_scope": "stolen"}}'
    )
    raw = raw.replace(b"12345678901234567890123", b"7")
    await gateway.http.post("/v1/chat/completions", content=raw)
    seen = up.seen[-1]
    assert seen["messages"][0]["weird"] == [1, None]
    assert list(seen["custom"]) == ["z", "a"]
    assert "agentspec" not in seen and seen["stream"] is False


async def test_the_engine_gets_the_gateways_scope_and_session(start, up):
    async with start(kind="engine") as gateway:
        wished = {"cache_scope": "stolen", "arm": "control", "speculation": "off"}
        await gateway.chat("good", stream=True, agentspec=wished, prompt_cache_key="conv-1")
    assert up.seen[-1]["agentspec"] == {
        "session": "conv-1",
        "cache_scope": "local",
        "arm": "control",
        "speculation": "off",
    }
    wished = {"include_usage": True, "continuous_usage_stats": True}
    assert up.seen[-1]["stream_options"] == wished


@pytest.mark.parametrize("stream", [False, True])
async def test_an_output_limit_without_room_is_lowered_once(gateway, up, stream):
    answer = await gateway.chat("no_room", stream=stream, max_tokens=32000)
    assert answer.status_code == 200
    assert [body["max_tokens"] for body in up.seen] == [32000, ROOM]
    fits = await gateway.chat("no_room", max_tokens=5)
    assert fits.status_code == 200 and len(up.seen) == 3


async def test_developers_are_called_system(gateway, up):
    messages = [{"role": "developer", "content": 'Say "developer".'}]
    await gateway.http.post("/v1/chat/completions", json={"model": "good", "messages": messages})
    assert up.seen[-1]["messages"] == [{"role": "system", "content": 'Say "developer".'}]


async def test_the_clients_credential_stays_here(start, up, monkeypatch):
    monkeypatch.setenv("UPSTREAM_KEY", "upstream-secret")
    async with start(backend={"api_key_env": "UPSTREAM_KEY"}) as gateway:
        gateway.http.headers.update({"authorization": "Bearer mine", "x-api-key": "mine"})
        await gateway.chat("good")
    assert up.headers[-1]["Authorization"] == "Bearer upstream-secret"
    assert "mine" not in json.dumps(up.headers[-1])


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"tools": [], "tool_choice": "auto"}, set()),
        ({"tools": [], "tool_choice": "required"}, {"tool_choice"}),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, {"tools"}),
    ],
)
async def test_empty_tools_are_not_sent(gateway, up, sent, kept):
    await gateway.chat("good", **sent)
    assert {"tools", "tool_choice"} & set(up.seen[-1]) == kept


async def test_connections_are_used_again(gateway, up):
    for _ in range(5):
        await gateway.chat("good", stream=True)
        await gateway.chat("good")
    assert len(up.connections) == 1


async def test_the_row_of_an_engine_answer(start):
    async with start(kind="engine") as gateway:
        http = gateway.http
        http.headers["user-agent"] = "opencode/1.18.33 ai-sdk/provider-utils/4.0.23"
        await gateway.chat("good", stream=True, max_tokens=9, temperature=0.5)
        row, opened = gateway.journal.row, gateway.journal.opened[0]
    assert (opened.id, opened.model, opened.stream) == (row.id, "good", True)
    assert (row.status, row.http_status, row.finish_reason) == ("ok", 200, "stop")
    assert (row.backend, row.backend_kind, row.attempts) == ("up", "engine", 1)
    assert (row.in_tok, row.cached_tok, row.out_tok) == (12, 8, 5)
    assert (row.spec_steps, row.spec_drafted, row.spec_accepted) == (3, 6, 4)
    assert (row.redecoded_tok, row.tools_saved_chars) == (3, 4000)
    assert row.forced_tok == 2 and row.spec_hist == [1, 0, 2] and row.exact
    assert row.spec_sources["suffix"] == REPORT["sources"]["suffix"]
    assert (row.busy_prefill_us, row.busy_decode_us, row.queue_ms) == (100, 200, 1.5)
    assert (row.client, row.client_version) == ("opencode", "1.18.33")
    assert (row.max_tokens, row.temperature, row.token_source) == (9, 0.5, "engine")
    assert row.decision["policy"] == "fixed" and row.decision["propensity"] == 1.0
    assert row.ttft_ms is not None and 0 < row.ttft_ms <= row.e2e_ms


async def test_acceptance_of_vllm(gateway):
    await gateway.chat("vllm", stream=True)
    row: RequestRecord = gateway.journal.row
    assert (row.spec_steps, row.spec_drafted, row.spec_accepted) == (4, 12, 7)
    assert row.spec_hist == [1, 0, 2, 1]


async def test_tool_calls_pass_and_are_counted(gateway):
    chunks = events((await gateway.chat("tools", stream=True)).text)
    pieces = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks[1:-1]]
    assert pieces[0]["id"] == "call_1" and pieces[0]["type"] == "function"
    assert {p["index"] for p in pieces} == {0}
    assert json.loads("".join(p["function"]["arguments"] for p in pieces)) == {"a": 1}
    row = gateway.journal.row
    assert (row.tool_calls, row.tool_calls_valid) == (1, 1)
    assert row.token_source == "estimated" and row.out_tok == 3


async def test_usage_in_the_row_is_the_backends(gateway):
    await gateway.chat("good")
    assert gateway.journal.row.in_tok == USAGE["prompt_tokens"]


async def test_a_broken_journal_does_not_lose_the_answer(gateway):
    gateway.journal.broken = True
    assert said(events((await gateway.chat("good", stream=True)).text)) == WHOLE
    metrics = (await gateway.http.get("/metrics")).text
    assert "agentspec_journal_failures_total 2.0" in metrics
    assert 'agentspec_requests_total{backend="up",model="good",status="ok"} 1.0' in metrics
    assert "agentspec_requests_in_flight 0.0" in metrics
