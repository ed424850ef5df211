"""The engine's HTTP against the unchanged ``openai`` SDK, and by hand where a client misbehaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import aiohttp
import openai
import pytest

from agentspec.engine.request import Output
from agentspec.wire.errors import Overloaded
from tests.engine.server.fakes import CONTEXT_TOKENS, FORMAT, MODEL, says

HI: Any = [{"role": "user", "content": "hi"}]
LS: Any = {
    "type": "function",
    "function": {"name": "ls", "parameters": {"type": "object", "properties": {"p": {}}}},
}
CALL = FORMAT.render_calls([("ls", '{"p": "x"}')])


async def post(url: str, body: Any) -> tuple[int, Any, Mapping[str, str]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.ClientSession() as http, http.post(url, data=data) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text else None, answer.headers


async def stream_lines(url: str, **fields: Any) -> list[str]:
    """The events and comments of a stream until its end."""
    body = {"model": MODEL, "messages": HI, "stream": True} | fields
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [part for part in (await answer.text()).split("\n\n") if part]


async def test_a_whole_answer(serve):
    served = await serve(lambda request: says("Hal", "lo é"))
    answer = await served.client.chat.completions.create(model=MODEL, messages=HI)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Hallo é", "stop")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.usage and answer.usage.completion_tokens_details
    assert answer.usage.completion_tokens == len("Hallo é".encode())
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens == 4
    assert answer.model_extra and answer.model_extra["agentspec"]["steps"] == 3


async def test_a_stream(serve):
    served = await serve(lambda request: says("Hal", "lo é"))
    stream = await served.client.chat.completions.create(
        model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hallo é"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage and chunks[-1].usage.total_tokens == 9 + 8
    assert chunks[-1].model_extra and chunks[-1].model_extra["agentspec"]["hist"] == [1, 0, 2]
    assert (await stream_lines(served.url))[-1] == "data: [DONE]"


async def test_a_stream_with_running_counts(serve):
    """A count is of what had come when its chunk was written: several outputs may be one write."""

    def script(_: object) -> list[Output]:
        text = says("a", "b")
        for output in text:
            output.output_tokens += 2
        return [Output(id="", tokens=2, output_tokens=2), *text]

    served = await serve(script)
    options = {"include_usage": True, "continuous_usage_stats": True}
    lines = await stream_lines(served.url, stream_options=options)
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["usage"]["prompt_tokens"] for c in chunks] == [9] * len(chunks)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[0] >= 2 and counts[-1] == 4
    assert "role" not in chunks[1]["choices"][0]["delta"]


async def test_the_stop_string_that_ended_an_answer_is_told(serve):
    served = await serve(lambda request: says("a", "b", stopped_by="\n\n"))
    answer = await served.client.chat.completions.create(model=MODEL, messages=HI)
    assert answer.choices[0].model_extra == {"stop_reason": "\n\n"}
    last = json.loads((await stream_lines(served.url))[-2].removeprefix("data: "))
    assert last["choices"][0]["stop_reason"] == "\n\n"


async def test_the_sdk_puts_a_streamed_call_together(serve):
    served = await serve(lambda request: says(*CALL))
    async with served.client.chat.completions.stream(
        model=MODEL, messages=HI, tools=[LS]
    ) as stream:
        final = await stream.get_final_completion()
    (choice,) = final.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("ls", '{"p": "x"}')
    whole = await served.client.chat.completions.create(model=MODEL, messages=HI, tools=[LS])
    assert whole.choices[0].message.content is None
    (call,) = whole.choices[0].message.tool_calls or []
    assert call.type == "function" and call.function.name == "ls"


async def test_each_steps_text_is_sent_at_once(serve):
    gate = threading.Event()
    served = await serve(lambda request: [*says("now", "later")[:1], gate, *says("later")])
    stream = await served.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
    chunks = aiter(stream)
    first = await anext(chunks)
    assert first.choices[0].delta.content == "now", "sent while the engine stands still"
    gate.set()
    rest = [chunk.choices[0].delta.content async for chunk in chunks]
    assert rest == ["later", None]


async def test_several_choices(serve):
    served = await serve(lambda request: says(f"choice {request.id[-1]}"))
    answer = await served.client.chat.completions.create(model=MODEL, messages=HI, n=3)
    assert [c.message.content for c in answer.choices] == ["choice 0", "choice 1", "choice 2"]
    stream = await served.client.chat.completions.create(model=MODEL, messages=HI, n=3, stream=True)
    texts = {0: "", 1: "", 2: ""}
    ends = []
    async for chunk in stream:
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        ends += [choice.finish_reason] if choice.finish_reason else []
    assert texts == {i: f"choice {i}" for i in range(3)}
    assert ends == ["stop"] * 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"temperature": 3}, 400, "temperature", "invalid_value"),
        ({"model": "other"}, 404, "model", "model_not_found"),
        ({"messages": "hi"}, 400, "messages", "invalid_value"),
        ({"messages": None}, 400, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": "x" * CONTEXT_TOKENS}]},
            400,
            "messages",
            "context_length_exceeded",
        ),
        ({"agentspec": {"speculation": ["x"]}}, 400, "agentspec.speculation", "invalid_value"),
    ],
)
async def test_refusals_are_the_same_with_and_without_a_stream(
    serve, stream, fields, status, param, code
):
    served = await serve(lambda request: says("never"))
    body = {"model": MODEL, "messages": HI, "stream": stream} | fields
    got, answer, headers = await post(f"{served.url}/v1/chat/completions", body)
    assert got == status
    assert headers["Content-Type"] == "application/json"
    error = answer["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]
    assert served.engine.added == []


async def test_what_cannot_be_read(serve):
    served = await serve(lambda request: says("never"), max_body_bytes=1000)
    chat = f"{served.url}/v1/chat/completions"
    for body in (b"", b"{", b"[]", b'"\xff"'):
        status, answer, _ = await post(chat, body)
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    status, answer, _ = await post(chat, {"model": MODEL})
    assert (status, answer["error"]["param"]) == (400, "messages")
    status, answer, _ = await post(chat, b" " * 1001)
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


async def test_unknown_routes_and_methods(serve):
    served = await serve(lambda request: says("never"))
    status, answer, _ = await post(f"{served.url}/v1/completely/else", {})
    assert (status, answer["error"]["type"]) == (404, "invalid_request_error")
    status, answer, headers = await post(f"{served.url}/v1/models", {})
    assert (status, answer["error"]["code"]) == (405, "method_not_supported")
    assert headers["Allow"] == "GET"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_said_before_the_first_byte(serve, stream):
    served = await serve(lambda request: says("never"))
    served.engine.refusal = Overloaded("The queue is full.")
    status, answer, headers = await post(
        f"{served.url}/v1/chat/completions",
        {"model": MODEL, "messages": HI, "stream": stream},
    )
    assert (status, answer["error"]["code"]) == (503, "overloaded")
    assert headers["retry-after"] == "1"
    served.engine.refusal = None
    assert (await stream_lines(served.url))[-1] == "data: [DONE]"


async def test_what_breaks_its_constraint(serve):
    served = await serve(lambda request: says("text"))
    fields = {"tools": [LS], "tool_choice": "required"}
    status, answer, _ = await post(
        f"{served.url}/v1/chat/completions", {"model": MODEL, "messages": HI} | fields
    )
    assert (status, answer["error"]["code"]) == (500, "constraint_not_met")
    lines = await stream_lines(served.url, **fields)
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "constraint_not_met"


async def test_a_failure_within_a_stream_is_an_error_chunk_without_done(serve):
    served = await serve(lambda request: [*says("half", "x")[:1], *says("", finish="error")])
    lines = await stream_lines(served.url)
    assert json.loads(lines[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "half"
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["type"] == "server_error"
    stream = await served.client.chat.completions.create(model=MODEL, messages=HI, stream=True)
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass
    with pytest.raises(openai.InternalServerError):
        await served.client.chat.completions.create(model=MODEL, messages=HI)


async def test_one_failed_choice_ends_them_all(serve):
    gate = threading.Event()

    def script(request):
        if request.id.endswith("-1"):
            return [gate, *says("", finish="error")]
        return [*says("x", "y")[:1], gate, gate, gate, *says("y")]

    served = await serve(script)
    reading = asyncio.create_task(stream_lines(served.url, n=2))
    while len(served.engine.running) < 2:
        await asyncio.sleep(0)
    gate.set()
    lines = await reading
    assert "error" in json.loads(lines[-1].removeprefix("data: "))
    assert await served.service.loop.call(lambda: served.engine.running) == {}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_sequences_within_a_step(serve, stream):
    gate = threading.Event()
    served = await serve(lambda request: [*says("a", "b")[:1], gate, *says("never")])
    body = json.dumps({"model": MODEL, "messages": HI, "stream": stream, "n": 2}).encode()
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
    writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
    while len(served.engine.running) < 2:
        await asyncio.sleep(0)
    if stream:
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()
    await writer.wait_closed()
    while served.service._open:
        await asyncio.sleep(0)
    steps = served.engine.steps
    await asyncio.to_thread(served.engine.abort_seen.wait, 10)
    assert served.engine.steps <= steps + 1
    await served.service.loop.call(lambda: None)
    assert served.engine.running == {}
    assert sorted(id[-2:] for id in served.engine.aborted) == ["-0", "-1"]


async def test_silence_is_broken_by_comments(serve):
    gate = threading.Event()
    served = await serve(lambda request: [gate, *says("late")], keepalive_s=0.02)
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{served.url}/v1/chat/completions",
            json={"model": MODEL, "messages": HI, "stream": True},
        ) as answer,
    ):
        assert await answer.content.readuntil(b"\n\n") == b": keepalive\n\n"
        assert await answer.content.readuntil(b"\n\n") == b": keepalive\n\n"
        gate.set()
        rest = await answer.content.read()
    assert b"late" in rest and rest.endswith(b"data: [DONE]\n\n")


async def test_a_held_call_is_silence_too(serve):
    """Tokens come, yet none of them may be shown before the call is whole."""
    gate = threading.Event()
    head, tail = CALL[:-9], CALL[-9:]
    pieces = says(*head, tail)
    served = await serve(lambda request: [*pieces[:-1], gate, pieces[-1]], keepalive_s=0.02)
    reading = asyncio.create_task(stream_lines(served.url, tools=[LS]))
    while served.engine.steps < len(pieces):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    gate.set()
    lines = await reading
    assert lines[0] == ": keepalive" and lines[-1] == "data: [DONE]"


async def test_small_routes(serve):
    served = await serve(lambda request: says("x"))
    models = await served.client.models.list()
    assert [m.id for m in models.data] == [MODEL]
    assert models.data[0].model_extra is not None
    assert models.data[0].model_extra["context_length"] == CONTEXT_TOKENS
    assert (await served.client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await served.client.models.retrieve("org/other")
    status, answer, _ = await post(f"{served.url}/tokenize", {"messages": HI})
    assert (status, answer["count"], answer["max_model_len"]) == (200, 9, CONTEXT_TOKENS)
    status, answer, _ = await post(f"{served.url}/tokenize", {"prompt": 3})
    assert (status, answer["error"]["param"]) == (400, "prompt")


async def test_metrics(serve):
    served = await serve(lambda request: says("abc"))
    await served.client.chat.completions.create(model=MODEL, messages=HI)
    await post(f"{served.url}/v1/chat/completions", {"model": MODEL, "messages": []})
    async with aiohttp.ClientSession() as http, http.get(f"{served.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    for line in (
        'requests_total{status="ok"} 1.0',
        'requests_total{status="refused"} 1.0',
        'drafted_tokens_total{source="suffix"} 6.0',
        'accepted_tokens_total{source="suffix"} 4.0',
        'busy_seconds_total{phase="prefill"} 1.5',
        'pages{state="free"} 3.0',
        "steps_total 1.0",
        "ttft_seconds_count 1.0",
        "redecoded_tokens_total 2.0",
        "queue_seconds_count 1.0",
    ):
        assert f"agentspec_engine_{line}" in lines
    assert not [line for line in lines if line.startswith("python_")]


async def health(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as answer:
        return answer.status


async def test_a_dead_engine_fails_everybody_and_ends_the_process(serve):
    gate = threading.Event()
    served = await serve(lambda request: [gate, RuntimeError("bits fell over")])
    assert await health(served.url) == 200
    waiting = asyncio.create_task(served.client.chat.completions.create(model=MODEL, messages=HI))
    reading = asyncio.create_task(stream_lines(served.url))
    while len(served.engine.running) < 2:
        await asyncio.sleep(0)
    gate.set()
    with pytest.raises(openai.InternalServerError, match="bits fell over"):
        await waiting
    assert "bits fell over" in (await reading)[-1]
    assert isinstance(served.service.loop.failure, RuntimeError)
    assert not served.service.healthy
    assert served.server.should_exit, "the process ends, its supervisor starts a new one"


async def test_shutdown_lets_short_answers_end_and_refuses_new_ones(serve):
    gate = threading.Event()
    served = await serve(lambda request: [gate, *says("done")])
    reading = asyncio.create_task(stream_lines(served.url))
    while not served.engine.running:
        await asyncio.sleep(0)
    draining = asyncio.create_task(served.service.drain(10))
    await asyncio.sleep(0)
    assert await health(served.url) == 503
    status, _, _ = await post(f"{served.url}/v1/chat/completions", {"model": MODEL, "messages": HI})
    assert status == 503
    gate.set()
    assert (await reading)[-1] == "data: [DONE]"
    await draining


async def test_shutdown_breaks_long_answers_off(serve):
    gate = threading.Event()
    served = await serve(lambda request: [*says("half", "x")[:1], gate, gate, *says("never")])
    reading = asyncio.create_task(stream_lines(served.url))
    while served.engine.steps < 2:
        await asyncio.sleep(0)
    draining = asyncio.create_task(served.service.drain(0.01))
    while served.service.loop.alive and not served.service.loop._closing:
        await asyncio.sleep(0)
    gate.set()
    await draining
    assert json.loads((await reading)[-1].removeprefix("data: "))["error"]["code"] == "overloaded"
