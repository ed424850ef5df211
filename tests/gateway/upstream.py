"""A stand-in for an OpenAI-compatible server: a real HTTP server on loopback with a script.

It generates nothing: each request's model name picks a script from ``scripts.py``, most of which
break in one particular way. ``Upstream.seen`` holds what was received.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiohttp import web

from tests.gateway.scripts import (
    DEEP,
    DONE,
    NO_ROOM,
    ODD_USAGE,
    REFUSALS,
    REPORT,
    ROOM,
    SCRIPTS,
    TEXT,
    USAGE,
    WEATHER,
    Upstream,
)


async def _chat(up: Upstream, request: web.Request) -> web.StreamResponse:
    body = await request.json()
    up.seen.append(body)
    up.headers.append(dict(request.headers))
    up.connections.add(request.transport)
    name = body["model"]
    if name in REFUSALS:
        status, answer = REFUSALS[name]
        headers = {"Retry-After": "7", "Location": up.url + "/health"}
        return web.json_response(answer, status=status, headers=headers)
    if name == "no_room" and body.get("max_tokens", 0) > ROOM:
        return web.json_response({"object": "error", "message": NO_ROOM}, status=400)
    if name == "aborts":
        assert request.transport is not None
        request.transport.abort()
        return web.Response()
    if not body.get("stream"):
        return await _whole(up, name)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    started = False

    async def write(data: bytes) -> None:
        nonlocal started
        if not started:
            started = True
            await response.prepare(request)
        await response.write(data)

    await SCRIPTS[name](up, request, write)
    return response


# Of an answer that isn't streamed: the finish reason, and (id, name, arguments) of its calls.
WHOLE_CALLS: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "agent": ("tool_calls", [("call_a", "weather", json.dumps(WEATHER)), ("", "now", "")]),
    "cut_in_call": (
        "length",
        [("call_a", "weather", '{"a": 1}'), ("call_b", "weather", '{"command": "rm -rf ')],
    ),
    "torn_call": ("tool_calls", [("call_a", "weather", '{"command": "cat ')]),
    "deep_call": ("tool_calls", [("call_a", "weather", DEEP)]),
}


async def _whole(up: Upstream, name: str) -> web.Response:
    if name in ("waits", "silent"):
        await up.release.wait()
    reason = "abort" if name == "gave_up" else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": "".join(TEXT)}
    if name == "thinks":
        message["content"] = "<think>\nLet me see.\n</think>\n\nYes.\n"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    if name in WHOLE_CALLS:
        choice["finish_reason"], calls = WHOLE_CALLS[name]
        message |= {"content": "I will look.", "reasoning_content": "Let me see."}
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, n, a in calls
        ]
    body = {"id": "up-1", "object": "chat.completion", "created": 1, "model": "their-name"}
    if name in ODD_USAGE:
        return web.json_response(body | {"choices": [choice], "usage": ODD_USAGE[name]})
    return web.json_response(body | {"choices": [choice], "usage": USAGE, "agentspec": REPORT})


def _old_logprobs(tokens: Sequence[str]) -> dict[str, Any]:
    count = len(tokens)
    return {
        "tokens": list(tokens),
        "token_logprobs": [-0.5] * count,
        "top_logprobs": [{"z": -2.0}] * count,
        "text_offset": [0] * count,
    }


async def _completions(up: Upstream, request: web.Request) -> web.StreamResponse:
    """Text completions, as vLLM and others offer them."""
    body = await request.json()
    up.seen.append(body | {"path": request.path})
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "their-name"}
    if not body.get("stream"):
        choice = {"index": 0, "text": "".join(TEXT), "finish_reason": "stop"}
        choice["logprobs"] = _old_logprobs(TEXT) if body.get("logprobs") else None
        return web.json_response(head | {"choices": [choice], "usage": USAGE})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for text, reason in [*((t, None) for t in TEXT), ("", "stop")]:
        choice = {"index": 0, "text": text, "finish_reason": reason}
        if body.get("logprobs"):
            choice["logprobs"] = _old_logprobs([text] if text else [])
        data = json.dumps(head | {"choices": [choice]}).encode()
        await response.write(b"data: " + data + b"\n\n")
    await response.write(b"data: " + json.dumps(head | {"choices": [], "usage": USAGE}).encode())
    await response.write(b"\n\n" + DONE)
    return response


@contextlib.asynccontextmanager
async def running_upstream() -> AsyncIterator[Upstream]:
    """Start the stand-in on a free port; ``left`` is set when a client breaks a request off."""
    up = Upstream()

    async def chat(request: web.Request) -> web.StreamResponse:
        try:
            return await _chat(up, request)
        except (asyncio.CancelledError, ConnectionError):
            up.left.set()
            raise

    async def models(_: web.Request) -> web.Response:
        card = {"id": "good", "object": "model", "max_model_len": 4096}
        return web.json_response({"data": [card]}, status=200 if up.healthy else 500)

    async def completions(request: web.Request) -> web.StreamResponse:
        return await _completions(up, request)

    async def embeddings(request: web.Request) -> web.Response:
        body = await request.json()
        up.seen.append(body | {"path": request.path})
        vector = "AACAPw==" if body.get("encoding_format") == "base64" else [1.0]
        data = [{"object": "embedding", "index": 0, "embedding": vector}]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        return web.json_response({"object": "list", "data": data, "model": "e", "usage": usage})

    async def tokenize(request: web.Request) -> web.Response:
        body = await request.json()
        up.seen.append(body | {"path": request.path})
        if body["model"] == "vllm":
            return web.json_response({"message": "no such path"}, status=404)
        return web.json_response({"count": 321, "max_model_len": 4096, "tokens": []})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({}, status=200 if up.healthy else 503)

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/v1/embeddings", embeddings)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    up.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield up
    finally:
        up.release.set()
        await runner.cleanup()
