"""Answers that no server should give, over HTTP: read, or an error; never a crash, never lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec import UNSET

from agentspec.backends.anthropic import AnthropicBackend
from agentspec.backends.base import Backend, Native, PassedChunk, Turn
from agentspec.backends.litellm import LiteLLMBackend
from agentspec.backends.openai import OpenAIBackend
from agentspec.settings import BackendSettings
from agentspec.wire.chat import ChatChunk, decode_request
from agentspec.wire.errors import UpstreamFailed, http_status, openai_body
from agentspec.wire.messages_errors import anthropic_status

Start = Callable[..., contextlib.AbstractAsyncContextManager[Backend]]
DEEP = "[" * 50_000 + "]" * 50_000
NATIVE = Native("/messages", {})
HANGS, RESETS = "hangs", "resets"


def turn(native: Native | None = None) -> Turn:
    raw = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    body = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    request = decode_request(raw)
    return Turn("1", request, body, upstream_model="u", created_s=9, native=native)


@contextlib.asynccontextmanager
async def upstream(
    kind: str, *pieces: bytes | str, status: int = 200, mime: str = "text/event-stream"
) -> AsyncIterator[Backend]:
    """A backend before a server that answers everything in the same way."""
    done = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(status=status, headers={"Content-Type": mime})
        await response.prepare(request)
        for piece in pieces:
            if isinstance(piece, bytes):
                await response.write(piece)
            elif piece == HANGS:
                await done.wait()
            else:
                assert request.transport is not None
                request.transport.abort()
        return response

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    settings = BackendSettings(kind=kind, url=f"http://127.0.0.1:{runner.addresses[0][1]}")  # type: ignore[arg-type]
    backend = (
        AnthropicBackend("b", settings) if kind == "anthropic" else OpenAIBackend("b", settings)
    )
    try:
        yield backend
    finally:
        done.set()
        await backend.aclose()
        await runner.cleanup()


async def streamed(backend: Backend, native: Native | None = None) -> list[ChatChunk]:
    async with aclosing(backend.chat(turn(native))) as chunks:
        return [chunk async for chunk in chunks]


def data(value: Any) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"data: " + text + b"\n\n"


def chunk(delta: Any = None, reason: str | None = None, **more: Any) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}]} | more)


def named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + data({"type": kind} | fields)


def text_of(chunks: list[ChatChunk]) -> str:
    said = [c.delta.content for chunk in chunks for c in chunk.choices]
    return "".join(text for text in said if isinstance(text, str))


def calls_of(chunks: list[ChatChunk]) -> list[tuple[str | None, str | None]]:
    deltas = [d for chunk in chunks for c in chunk.choices for d in c.delta.tool_calls or ()]
    return [(d.function.name, d.function.arguments) for d in deltas if d.function is not None]


START = named("message_start", message={"usage": {"input_tokens": 3}})
TEXT = (
    named("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + named("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hey"})
    + named("content_block_stop", index=0)
)
STOP = named("message_stop")


def ends(reason: str) -> bytes:
    return named("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 2})


def call(text: str) -> bytes:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": text}
    return (
        named("content_block_start", index=1, content_block=block)
        + named("content_block_delta", index=1, delta=piece)
        + named("content_block_stop", index=1)
    )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("openai", f'{{"choices": [{{"delta": {{"content": "x"}}}}], "z": {DEEP}}}'),
        ("openai", f'{{"choices": [], "usage": {{"z": {DEEP}}}}}'),
        ("anthropic", f'{{"type": "ping", "z": {DEEP}}}'),
        ("anthropic", f'{{"type": "message_start", "message": {{"z": {DEEP}}}}}'),
    ],
)
async def test_what_is_nested_beyond_reading_is_an_error_of_the_backend(kind: str, body: str):
    native = NATIVE if kind == "anthropic" else None
    async with upstream(kind, data(body.encode())) as backend:
        with pytest.raises(UpstreamFailed, match="nested too deeply"):
            await streamed(backend, native)
    async with upstream(kind, body.encode(), mime="application/json") as backend:
        with pytest.raises(UpstreamFailed, match="nested too deeply"):
            await backend.complete(turn(native))
    async with upstream(kind, body.encode(), status=400, mime="application/json") as backend:
        with pytest.raises(UpstreamFailed):
            await backend.complete(turn(native))


@pytest.mark.parametrize("behind", [(), (TEXT,), (HANGS,), (named("ping"), HANGS), (RESETS,)])
async def test_messages_end_with_message_stop_whatever_comes_behind(behind: tuple[Any, ...]):
    whole = START + TEXT + ends("end_turn")
    async with upstream("anthropic", whole, STOP, *behind) as backend:
        seen = await asyncio.wait_for(streamed(backend, NATIVE), 10)
    assert all(isinstance(one, PassedChunk) for one in seen)
    assert b"".join(one.passed for one in seen if isinstance(one, PassedChunk)) == whole + STOP
    assert [one.last for one in seen if isinstance(one, PassedChunk)][-2:] == [False, True]


@pytest.mark.parametrize("end", [STOP, ends("end_turn"), b""])
async def test_messages_without_their_end_are_an_error(end: bytes):
    async with upstream("anthropic", START + TEXT + end) as backend:
        with pytest.raises(UpstreamFailed, match="before it was finished"):
            await streamed(backend, NATIVE)


async def test_a_later_count_keeps_the_end_of_messages():
    more = named("message_delta", delta={}, usage={"output_tokens": 9})
    async with upstream("anthropic", START + ends("max_tokens") + more + STOP) as backend:
        chunks = await streamed(backend, NATIVE)
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason][-1] == "length"


async def test_a_torn_call_of_messages_that_claim_to_be_whole_is_an_error():
    for reason in ("tool_use", "end_turn"):
        async with upstream("anthropic", START + call('{"a":') + ends(reason) + STOP) as backend:
            with pytest.raises(UpstreamFailed) as failed:
                await streamed(backend, NATIVE)
        assert failed.value.code == "malformed_tool_call"
    for text, reason in (('{"a":', "max_tokens"), ('{"a": 1}', "tool_use"), ("", "tool_use")):
        async with upstream("anthropic", START + call(text) + ends(reason) + STOP) as backend:
            assert await streamed(backend, NATIVE)


async def test_events_are_passed_on_line_by_line_and_only_under_names():
    event = b'event: x\r\ndata: {"type": "message_start",\r\ndata: "message": {}}\r\n\r\n'
    bad = data({"type": "zork\nevent: error\ndata: {}"})
    async with upstream("anthropic", event + bad + ends("end_turn") + STOP) as backend:
        seen = await streamed(backend, NATIVE)
    passed = b"".join(one.passed for one in seen if isinstance(one, PassedChunk))
    assert passed.startswith(
        b'event: message_start\ndata: {"type": "message_start",\ndata: "message": {}}\n\n'
        b"event: message_delta\n"
    )
    assert b"error" not in passed


@pytest.mark.parametrize("usage", ["x", 5, [1], {"prompt_tokens": "x", "completion_tokens": None}])
async def test_odd_counts_do_not_spoil_an_answer(usage: Any):
    answer = {"choices": [{"message": {"content": "Hey"}, "finish_reason": "stop"}], "usage": usage}
    async with upstream("openai", chunk({"content": "Hey"}, "stop", usage=usage)) as backend:
        assert text_of(await streamed(backend)) == "Hey"
    body = json.dumps(answer).encode()
    async with upstream("openai", body, mime="application/json") as backend:
        assert (await backend.complete(turn())).choices[0].message.content == "Hey"
    message = {"content": [{"type": "text", "text": "Hey"}], "stop_reason": "end_turn"}
    body = json.dumps(message | {"usage": usage}).encode()
    async with upstream("anthropic", body, mime="application/json") as backend:
        assert (await backend.complete(turn(NATIVE))).choices[0].message.content == "Hey"


async def test_whole_numbers_written_as_floats_are_counts():
    usage = {"prompt_tokens": 5.0, "completion_tokens": 2.0}
    async with upstream("openai", chunk({"content": "Hey"}, "stop", usage=usage)) as backend:
        told = (await streamed(backend))[-1].usage
    assert told is not UNSET and told is not None
    assert (told.prompt_tokens, told.completion_tokens) == (5, 2)


@pytest.mark.parametrize("reason", [None, "", "zork"])
async def test_a_whole_answer_without_a_known_end_is_an_error(reason: str | None):
    good = {"message": {"content": "Hey"}, "finish_reason": "stop"}
    for choices in ([good | {"finish_reason": reason}], [good, good | {"finish_reason": reason}]):
        body = json.dumps({"choices": choices}).encode()
        async with upstream("openai", body, mime="application/json") as backend:
            with pytest.raises(UpstreamFailed, match="ended its answer"):
                await backend.complete(turn())
    async with upstream("openai", chunk({"content": "Hey"}, reason)) as backend:
        with pytest.raises(UpstreamFailed, match="ended its answer"):
            await streamed(backend)
    body = json.dumps({"content": [], "stop_reason": None}).encode()
    async with upstream("anthropic", body, mime="application/json") as backend:
        with pytest.raises(UpstreamFailed, match="before it was finished"):
            await backend.complete(turn(NATIVE))


async def test_calls_and_text_in_older_spellings_are_read():
    head = chunk({"function_call": {"name": "f", "arguments": ""}})
    rest = chunk({"function_call": {"arguments": '{"a": 1}'}}) + chunk({}, "function_call")
    async with upstream("openai", head + rest) as backend:
        seen = await streamed(backend)
    assert calls_of(seen) == [("f", ""), (None, '{"a": 1}')]
    assert seen[-1].choices[0].finish_reason == "tool_calls"
    message = {"role": "assistant", "content": "Hey", "function_call": {"name": "f"}}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "function_call"}]}
    async with upstream("openai", data(whole)) as backend:
        seen = await streamed(backend)
    assert (text_of(seen), calls_of(seen)) == ("Hey", [("f", None)])
    body = json.dumps(whole).encode()
    async with upstream("openai", body, mime="application/json") as backend:
        assert text_of(await streamed(backend)) == "Hey"
        calls = (await backend.complete(turn())).choices[0].message.tool_calls
        assert calls is not UNSET and calls[0].function.name == "f"


async def test_content_in_parts_is_read():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts = [thinking, {"type": "text", "text": "Hey"}]
    async with upstream("openai", chunk({"content": parts}, "stop")) as backend:
        seen = await streamed(backend)
    assert text_of(seen) == "Hey"
    assert seen[0].choices[0].delta.reasoning_content == "Hm."


@pytest.mark.parametrize(
    ("told", "status", "kind"),
    [
        ({"code": "context_length_exceeded", "message": "m"}, 400, "invalid_request_error"),
        ({"code": "rate_limit_exceeded", "message": "m"}, 429, "rate_limit_error"),
        ({"type": "invalid_request_error", "message": "m"}, 400, "invalid_request_error"),
        ({"type": "insufficient_quota", "message": "m"}, 429, "insufficient_quota"),
        ({"message": "m", "code": 404}, 404, "invalid_request_error"),
        ({"message": "m", "code": "zork"}, 502, "server_error"),
    ],
)
async def test_an_error_as_first_event_has_the_status_of_its_code(
    told: Any, status: int, kind: str
):
    for mime in ("text/event-stream", "application/json"):
        body = {"error": told}
        raw = json.dumps(body).encode() if mime == "application/json" else data(body)
        async with upstream("openai", raw, mime=mime) as backend:
            with pytest.raises(UpstreamFailed) as failed:
                await streamed(backend)
        error = failed.value
        assert (http_status(error), anthropic_status(error)) == (status, status)
        assert (openai_body(error)["error"]["type"], error.message) == (kind, "m")


async def test_an_event_that_judges_the_gateways_credential_keeps_neither_status_nor_words():
    told = {"error": {"code": "invalid_api_key", "message": "Incorrect key sk-SECRET"}}
    async with upstream("openai", data(told)) as backend:
        with pytest.raises(UpstreamFailed) as failed:
            await streamed(backend)
    assert (failed.value.code, http_status(failed.value)) == ("upstream_credential_refused", 502)
    assert "SECRET" not in failed.value.message


WORDS = [
    ({"detail": [{"loc": ["body", "x"], "msg": "field required"}]}, "body.x: field required"),
    ({"detail": "No."}, "No."),
    ({"object": "error", "message": "No.", "type": "BadRequestError", "code": 400}, "No."),
    ({"error": {"message": "No."}}, "No."),
    ({"error": "No."}, "No."),
]


@pytest.mark.parametrize(("body", "words"), WORDS)
async def test_a_backends_words_are_kept_wherever_they_stand(body: Any, words: str):
    raw = json.dumps(body).encode()
    for pieces, status, mime in (
        (data(body), 200, "text/event-stream"),
        (raw, 200, "application/json"),
        (raw, 422, "application/json"),
    ):
        async with upstream("openai", pieces, status=status, mime=mime) as backend:
            with pytest.raises(UpstreamFailed) as failed:
                await streamed(backend)
            assert failed.value.message == words
            with pytest.raises(UpstreamFailed) as failed:
                await (
                    backend.complete(turn()) if mime == "application/json" else streamed(backend)
                )
            assert failed.value.message == words
    assert failed.value.type in ("invalid_request_error", "BadRequestError")


async def test_a_long_error_keeps_its_status():
    async with upstream("openai", b"x" * 100_000, status=413, mime="text/plain") as backend:
        with pytest.raises(UpstreamFailed) as failed:
            await streamed(backend)
    assert http_status(failed.value) == 413
    assert failed.value.message == "x" * 500


@pytest.mark.parametrize(
    ("kind", "status", "seen"),
    [
        ("invalid_request_error", 400, 400),
        ("rate_limit_error", 429, 429),
        ("overloaded_error", 529, 503),
    ],
)
def test_what_litellm_quotes_is_told_without_its_quotes(kind: str, status: int, seen: int):
    told = {"type": "error", "error": {"type": kind, "message": "It's so."}}
    words = f"litellm.BadRequestError: AnthropicException - {json.dumps(told).encode()!r}"
    backend = LiteLLMBackend("b", BackendSettings(kind="litellm"))
    error = backend._translate(Exception(words))
    assert isinstance(error, UpstreamFailed)
    assert (error.message, error.status, error.own) == ("It's so.", status, told)
    assert (http_status(error), openai_body(error)["error"]["type"]) == (seen, kind)
