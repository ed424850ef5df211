"""What the stand-in upstream (``upstream.py``) says, script by script, and what it was told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TEXT = ["Grüße", ", ", "Wélt 🌍", "!"]
ROOM = 31530
DEEP = '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"
NO_ROOM = (
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context "
    "length is 65536 tokens and your request has 34006 input tokens (32000 > 65536 - 34006). None"
)
USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 8},
}
REPORT = {
    "v": 1,
    "sources": {"suffix": {"drafted": 6, "accepted": 4}, "forced": {"drafted": 2, "accepted": 2}},
    "steps": 3,
    "hist": [1, 0, 2],
    "busy_us": {"prefill": 100, "decode": 200, "draft": 10, "grammar": 5},
    "queue_us": 1500,
    "exact": True,
    "arm": "on",
    "redecoded": 3,
    "tools_saved_chars": 4000,
}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event. Without a delta it has no choices (a usage chunk)."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "their-name"}
    return b"data: " + json.dumps(body | {"choices": choices} | more).encode() + b"\n\n"


def text_chunks() -> list[bytes]:
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": t}) for t in TEXT),
        chunk({}, "stop"),
    ]


DONE = b"data: [DONE]\n\n"


@dataclass
class Upstream:
    """What the stand-in received, and the handles to steer it."""

    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[Any] = field(default_factory=set)
    healthy: bool = True


Write = Callable[[bytes], Awaitable[None]]
Script = Callable[[Upstream, web.Request, Write], Awaitable[None]]


async def good(up: Upstream, request: web.Request, write: Write) -> None:
    for event in text_chunks():
        await write(event)
    await write(chunk(usage=USAGE, agentspec=REPORT))
    await write(DONE)


ODD_USAGE: dict[str, dict[str, Any] | None] = {
    "uncounted": None,
    "zeros": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "negative": {"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": -6},
    "absurd": {"prompt_tokens": 10**19, "completion_tokens": 9 * 10**15, "total_tokens": 1},
}
"""Counts that no server should tell, by the model that tells them."""


def odd(usage: dict[str, Any] | None) -> Script:
    async def script(up: Upstream, request: web.Request, write: Write) -> None:
        await write(chunk({}, "stop"))
        if usage is not None:
            await write(chunk(usage=usage))
        await write(DONE)

    return script


async def counts(up: Upstream, request: web.Request, write: Write) -> None:
    """Tells its counts in each chunk, and the stop string that ended it."""
    early = USAGE | {"completion_tokens": 1, "total_tokens": 13}
    for delta in ({"role": "assistant", "content": ""}, {"content": "Hi"}):
        await write(chunk(delta, usage=early))
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    await write(chunk(choices=[choice], usage=early))
    await write(chunk(usage=USAGE))
    await write(DONE)


async def gave_up(up: Upstream, request: web.Request, write: Write) -> None:
    """Ends its answer as a whole one, but for the reason."""
    for event in text_chunks()[:-1]:
        await write(event)
    await write(chunk({}, "abort"))
    await write(DONE)


async def only_done(up: Upstream, request: web.Request, write: Write) -> None:
    await write(DONE)


async def no_choices(up: Upstream, request: web.Request, write: Write) -> None:
    await write(b'data: {"choices": []}\n\n')
    await write(DONE)


async def an_error_with_200(up: Upstream, request: web.Request, write: Write) -> None:
    await write(b'{"error": {"message": "It broke."}}')


async def refuses(up: Upstream, request: web.Request, write: Write) -> None:
    await write(chunk({"role": "assistant", "content": ""}))
    for piece in ("I will ", "not."):
        await write(chunk({"refusal": piece}))
    await write(chunk({}, "stop"))
    await write(DONE)


async def thinks(up: Upstream, request: web.Request, write: Write) -> None:
    """Writes its reasoning into its text."""
    for piece in ("<th", "ink>\nLet me", " see.\n</think>", "\n\n", "Yes.\n"):
        await write(chunk({"content": piece}))
    await write(chunk({}, "stop"))
    await write(DONE)


async def no_room(up: Upstream, request: web.Request, write: Write) -> None:
    """Has room for ``ROOM`` output tokens, and refuses a limit above it before it writes."""
    await good(up, request, write)


async def vllm(up: Upstream, request: web.Request, write: Write) -> None:
    found = {"num_spec_steps": 4, "num_draft_tokens": 12, "num_accepted_draft_tokens": 7}
    more = {"acceptance_histogram": [1, 0, 2, 1]}
    for event in text_chunks():
        await write(event)
    await write(chunk(usage=USAGE, metrics={"speculative_decoding": found | more}))
    await write(DONE)


async def tools(up: Upstream, request: web.Request, write: Write) -> None:
    """Calls alone, opened with an empty text as SGLang, vLLM and our engine do."""
    first = {"index": 0, "id": "call_1", "type": "function"}
    await write(chunk({"role": "assistant", "content": ""}))
    await write(chunk({"tool_calls": [first | {"function": {"name": "f", "arguments": ""}}]}))
    for piece in ('{"a"', ": 1}"):
        await write(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}))
    await write(chunk({}, "tool_calls"))
    await write(DONE)


def _call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    """A delta with a piece of a call."""
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return {"tool_calls": [{"index": index, "function": function} | more]}


WEATHER = {"city": "Zürich", "days": [1, {"deep": "}{"}]}
AGENT: list[dict[str, Any]] = [
    {"role": "assistant", "content": ""},
    {"reasoning_content": "Let me "},
    {"reasoning": "see."},
    {"content": "I will "},
    {"content": "look.", "tool_calls": []},
    _call(0, "", name="weather", id="call_a", type="function"),
    _call(0, '{"city": "Z'),
    _call(1, "", name="now", id="", type="function"),
    _call(0, 'ürich", "days": [1, {"deep": "}{"}'),
    _call(0, "]}", id=""),
]


async def agent(up: Upstream, request: web.Request, write: Write) -> None:
    """Reasoning, text, and two calls whose pieces are mixed; the second has no arguments or id."""
    for delta in AGENT:
        await write(chunk(delta))
    await write(chunk({}, "tool_calls"))
    await write(chunk(usage=USAGE, agentspec=REPORT))
    await write(DONE)


async def only_calls(up: Upstream, request: web.Request, write: Write) -> None:
    """Not a word beside one call, in two pieces."""
    await write(chunk(_call(0, '{"a"', name="weather", id="call_a")))
    await write(chunk(_call(0, ": 1}")))
    await write(chunk({}, "tool_calls"))
    await write(chunk(usage=USAGE))
    await write(DONE)


async def cut_in_call(up: Upstream, request: web.Request, write: Write) -> None:
    """The token limit is met inside the second call."""
    await write(chunk(_call(0, '{"a": 1}', name="weather", id="call_a")))
    await write(chunk(_call(1, '{"command": "rm -rf ', name="weather", id="call_b")))
    await write(chunk({}, "length"))
    await write(chunk(usage=USAGE))
    await write(DONE)


async def torn_call(up: Upstream, request: web.Request, write: Write) -> None:
    """Claims to be whole, but its call is not."""
    await write(chunk(_call(0, '{"command": "cat ', name="weather", id="call_a")))
    await write(chunk({}, "tool_calls"))
    await write(DONE)


async def deep_call(up: Upstream, request: web.Request, write: Write) -> None:
    """Nests its arguments beyond what can be decoded."""
    await write(chunk(_call(0, DEEP, name="weather", id="call_a")))
    await write(chunk({}, "tool_calls"))
    await write(DONE)


async def torn_after_text(up: Upstream, request: web.Request, write: Write) -> None:
    """Says something first, so that the client's stream has begun."""
    await write(text_chunks()[1])
    await torn_call(up, request, write)


async def dies(up: Upstream, request: web.Request, write: Write) -> None:
    for event in text_chunks()[:3]:
        await write(event)
    assert request.transport is not None
    request.transport.abort()


async def aborts(up: Upstream, request: web.Request, write: Write) -> None:
    """Breaks the connection before it answers, whether or not a stream is wanted (``_chat``)."""
    raise AssertionError("it answers nothing")


async def headers_then_abort(up: Upstream, request: web.Request, write: Write) -> None:
    """Begins a stream and breaks it before its first word."""
    await write(b": hello\n\n")
    assert request.transport is not None
    request.transport.abort()


async def no_finish(up: Upstream, request: web.Request, write: Write) -> None:
    for event in text_chunks()[:-1]:
        await write(event)


async def done_without_finish(up: Upstream, request: web.Request, write: Write) -> None:
    await no_finish(up, request, write)
    await write(DONE)


async def garbage(up: Upstream, request: web.Request, write: Write) -> None:
    await write(text_chunks()[0])
    await write(b"data: {not json\n\n")


async def error_chunk(up: Upstream, request: web.Request, write: Write) -> None:
    await write(text_chunks()[1])
    await write(b'data: {"error": {"message": "out of memory", "type": "server_error"}}\n\n')


async def early_error_chunk(up: Upstream, request: web.Request, write: Write) -> None:
    await write(b'data: {"error": {"message": "no such grammar", "code": 400}}\n\n')


async def huge(up: Upstream, request: web.Request, write: Write) -> None:
    await write(text_chunks()[1])
    await write(b"data: {")
    for _ in range(9):
        await write(b"x" * 1024 * 1024)


async def split(up: Upstream, request: web.Request, write: Write) -> None:
    """The good answer, cut inside characters, lines and events."""
    raw = b""
    for event in text_chunks():
        body = json.loads(event[6:])
        raw += b": note\r\ndata: " + json.dumps(body, ensure_ascii=False).encode() + b"\r\n\r\n"
    raw += DONE
    for start in range(0, len(raw), 7):
        await write(raw[start : start + 7])


async def waits(up: Upstream, request: web.Request, write: Write) -> None:
    """Says a word, then nothing until released."""
    await write(text_chunks()[1])
    await up.release.wait()
    await write(chunk({}, "stop"))
    await write(DONE)


async def silent(up: Upstream, request: web.Request, write: Write) -> None:
    """Nothing at all until released."""
    await up.release.wait()
    await good(up, request, write)


async def silent_then_dies(up: Upstream, request: web.Request, write: Write) -> None:
    await up.release.wait()
    assert request.transport is not None
    request.transport.abort()


async def lingers(up: Upstream, request: web.Request, write: Write) -> None:
    """A whole answer, whose body is not ended after [DONE]."""
    await good(up, request, write)
    await up.release.wait()


def dies_after(sent: int) -> Script:
    """Breaks off after so many chunks of ``agent``."""

    async def script(up: Upstream, request: web.Request, write: Write) -> None:
        for delta in AGENT[:sent]:
            await write(chunk(delta))
        if sent > len(AGENT):
            await write(chunk({}, "tool_calls"))
        assert request.transport is not None
        request.transport.abort()

    return script


SCRIPTS: dict[str, Script] = {
    name: script for name, script in globals().items() if asyncio.iscoroutinefunction(script)
} | {name: odd(usage) for name, usage in ODD_USAGE.items()}
SCRIPTS |= {f"dies_after_{sent}": dies_after(sent) for sent in range(1, len(AGENT) + 2)}
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "busy": (429, {"error": {"message": "Slow down.", "type": "rate_limit_error"}}),
    "broken": (500, {"error": {"message": "It broke."}}),
    "overloaded": (503, {"error": {"message": "Full.", "code": "overloaded"}}),
    "too_long": (400, {"object": "error", "message": "maximum context length is 10 tokens"}),
    "wrong_key": (401, {"error": {"message": "Incorrect API key provided: sk-secret"}}),
    "moved": (302, {}),
    "anthropics_own": (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "thinking.display: Extra inputs"},
            "request_id": "req_theirs",
        },
    ),
}
