"""Backends that misbehave, and clients that leave."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from agentspec.gateway.app import create_app
from agentspec.settings import BackendSettings, ModelSettings, Settings
from tests.gateway.scripts import TEXT
from tests.gateway.serving import Gateway, ListJournal, running


def tail(text: str) -> dict:
    """The last event, which must be an error chunk: no [DONE] may follow it."""
    assert "[DONE]" not in text
    last = text.strip().split("\n\n")[-1].lstrip()
    return json.loads(last.removeprefix("data: "))["error"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("dies", "broke off"),
        ("no_finish", "before it was finished"),
        ("done_without_finish", "before it was finished"),
        ("garbage", "could not be read"),
        ("huge", "too large"),
        ("error_chunk", "out of memory"),
    ],
)
async def test_a_stream_that_breaks_never_ends_cleanly(gateway, script, words):
    answer = await gateway.chat(script, stream=True)
    assert answer.status_code == 200
    error = tail(answer.text)
    assert words in error["message"]
    row = gateway.journal.row
    assert (row.status, row.http_status, row.backend) == ("error", 200, "up")
    assert row.error_code == error["code"]
    told = (row.token_source, row.in_tok > 0)
    assert told == (("estimated", True) if row.out_tok else ("none", False))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "status", "words", "code"),
    [
        ("busy", 429, "Slow down.", "upstream_error"),
        ("broken", 502, "It broke.", "upstream_error"),
        ("overloaded", 503, "Full.", "overloaded"),
        ("too_long", 400, "maximum context length", "context_length_exceeded"),
        ("wrong_key", 502, "credential", "upstream_credential_refused"),
        ("moved", 502, "302", "upstream_error"),
    ],
)
async def test_refusals_come_before_the_first_byte(gateway, model, status, words, code, stream):
    answer = await gateway.chat(model, stream=stream)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert words in error["message"] and error["code"] == code
    assert "sk-secret" not in answer.text
    row = gateway.journal.row
    assert (row.status, row.http_status, row.error_code) == ("error", status, code)


@pytest.mark.parametrize("script", ["only_done", "an_error_with_200"])
async def test_a_stream_that_says_nothing_is_no_answer(gateway, script):
    answer = await gateway.chat(script, stream=True)
    assert answer.status_code == 502 and answer.json()["error"]["message"]
    assert gateway.journal.row.status == "error"


async def test_an_error_event_before_any_content_is_an_http_error(gateway):
    answer = await gateway.chat("early_error_chunk", stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "no such grammar"


async def test_retry_after_is_passed_on(gateway):
    assert (await gateway.chat("busy")).headers["retry-after"] == "7"


async def test_a_connection_that_breaks_reads_the_same_with_and_without_a_stream(gateway):
    """Also where a stream's headers, but no word of it, came before."""
    assert (await gateway.chat("good")).status_code == 200
    answers = [
        await gateway.chat("aborts"),
        await gateway.chat("aborts", stream=True),
        await gateway.chat("headers_then_abort", stream=True),
    ]
    assert [answer.status_code for answer in answers] == [502] * 3
    assert answers[0].json() == answers[1].json() == answers[2].json()
    error = answers[0].json()["error"]
    assert error["code"] == "upstream_disconnected" and "reached" not in error["message"]


@pytest.mark.parametrize("model", ["broken", "overloaded", "busy"])
async def test_a_backends_own_error_reads_the_same_with_and_without_a_stream(gateway, model):
    whole, streamed = await gateway.chat(model), await gateway.chat(model, stream=True)
    assert (whole.status_code, whole.json()) == (streamed.status_code, streamed.json())


async def test_no_backend_listens(start, free_port):
    url = f"http://127.0.0.1:{free_port()}"
    async with start(backend={"url": url}) as gateway:
        for stream in (False, True):
            answer = await gateway.chat("good", stream=stream)
            assert answer.status_code == 502
            assert answer.json()["error"]["code"] == "upstream_unreachable"
        assert [row.status for row in gateway.journal.closed] == ["error", "error"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_is_silent_for_too_long(start, stream):
    async with start(backend={"first_byte_timeout_s": 0.05}) as gateway:
        answer = await gateway.chat("silent", stream=stream)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "upstream_timeout"


async def test_a_stream_that_falls_silent(start):
    async with start(backend={"idle_timeout_s": 0.05}) as gateway:
        answer = await gateway.chat("waits", stream=True)
    assert answer.status_code == 200
    assert tail(answer.text)["code"] == "upstream_timeout"


async def test_silence_is_filled_with_comments(start, up):
    async with start(server={"keepalive_s": 0.02}) as gateway:
        body = {"model": "silent", "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": keepalive"
            up.release.set()
            rest = [line async for line in lines]
    assert rest[-2] == "data: [DONE]"
    assert "".join(TEXT) == "".join(
        json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        for line in rest
        if line.startswith("data: {")
    )


async def test_an_error_after_a_comment_is_an_error_chunk(start, up):
    async with start(server={"keepalive_s": 0.02}) as gateway:
        body = {
            "model": "silent_then_dies",
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
        }
        async with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": keepalive"
            up.release.set()
            rest = "\n".join([line async for line in lines])
    assert answer.status_code == 200
    assert tail(rest)["code"] == "upstream_disconnected"
    assert gateway.journal.row.http_status == 200


@pytest.mark.parametrize(
    ("script", "stream"), [("waits", True), ("silent", True), ("waits", False)]
)
async def test_a_client_that_leaves_ends_the_backends_work(gateway, up, script, stream):
    asked = asyncio.create_task(gateway.chat(script, stream=stream))
    while not up.seen:
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait_for(up.left.wait(), 5)
    while not gateway.journal.closed:
        await asyncio.sleep(0)
    row = gateway.journal.row
    assert (row.status, row.http_status) == ("cancelled", 499)
    assert row.backend == "up" and row.decision["attempts"] == [{"backend": "up"}]
    metrics = (await gateway.http.get("/metrics")).text
    assert "agentspec_requests_in_flight 0.0" in metrics


async def test_the_end_of_the_server_is_an_error_not_a_cancellation(up):
    settings = Settings(
        backends={"up": BackendSettings(kind="openai", url=up.url)},
        models={"waits": ModelSettings(backends=["up"])},
    )
    journal = ListJournal()
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        async with running(create_app(settings, journal=journal)) as url:
            asked = asyncio.create_task(Gateway(url, http, journal).chat("waits", stream=True))
            while not up.seen:
                await asyncio.sleep(0)
        with pytest.raises(httpx.HTTPError):
            await asked
    assert (journal.row.status, journal.row.error_code) == ("error", "stopping")
