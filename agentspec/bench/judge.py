"""Whether an answer is right in its own protocol: its shape, its order, its one end, its calls.

One judge a protocol; each reads a whole body or a stream's events and raises ``Wrong``, which names
the first fault. Clients' rules, written apart from the code that makes the answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentspec.toolcall.check import ArgumentsChecker
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Tool
from agentspec.wire.sse import EventParser

FINISHES = ("stop", "length", "tool_calls")


class Wrong(Exception):
    """The answer breaks a rule of its protocol."""


@dataclass(slots=True)
class Judged:
    """What a right answer holds. calls: (id, name, arguments as JSON text)."""

    finish: str | None = None
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0


Judge = Callable[[dict[str, Any], bytes], Judged]


def need(condition: object, why: str) -> None:
    if not condition:
        raise Wrong(why)


def data_of(raw: bytes) -> list[bytes]:
    """The data of every event; the stream must end between two of them."""
    parser = EventParser()
    found = list(parser.feed(raw))
    need(parser.idle, "the stream ends inside an event")
    need(found, "an empty stream")
    return found


def check_calls(tools: list[Tool], calls: list[tuple[str, str, str]]) -> None:
    """Every call must satisfy the schema that the client itself sent for it."""
    need(tools or not calls, "a tool call, but no tools were sent")
    ids = [id_ for id_, _, _ in calls]
    need(all(ids), "a call without id")
    need(len(set(ids)) == len(ids), "two calls of one id")
    checker = ArgumentsChecker(tools)
    for _, name, arguments in calls:
        fault = checker.check(name, arguments)
        need(not fault, f"{name}: {fault}")


def chat(body: dict[str, Any], raw: bytes) -> Judged:
    """Chat completions: choice 0, and ``[DONE]`` as the only end of a stream."""
    judged = _chat_stream(raw) if body.get("stream") else _chat_whole(raw)
    need(judged.finish in FINISHES, f"finish_reason {judged.finish!r}")
    need(judged.finish != "tool_calls" or judged.calls, "finish_reason tool_calls without a call")
    check_calls(msgspec.convert(body, ChatRequest).tools or [], judged.calls)
    return judged


def _chat_whole(raw: bytes) -> Judged:
    answer = msgspec.json.decode(raw, type=ChatResponse)
    choice, usage = answer.choices[0], answer.usage
    calls = [] if choice.message.tool_calls is msgspec.UNSET else choice.message.tool_calls
    need(usage is not None, "no usage")
    assert usage is not None
    return Judged(
        choice.finish_reason,
        [(c.id or "", c.function.name or "", c.function.arguments or "") for c in calls],
        usage.prompt_tokens,
        usage.completion_tokens,
    )


def _chat_stream(raw: bytes) -> Judged:
    *datas, last = data_of(raw)
    judged, growing = Judged(), {}
    for data in datas:
        value = json.loads(data)
        need("error" not in value, f"error chunk {value.get('error')}")
        chunk = msgspec.convert(value, ChatChunk)
        if chunk.usage:
            judged.prompt_tokens = chunk.usage.prompt_tokens
            judged.completion_tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.index != 0:
                continue
            need(judged.finish is None, "a choice that goes on after its finish_reason")
            judged.finish = choice.finish_reason
            for delta in choice.delta.tool_calls or []:
                call = growing.setdefault(delta.index, ["", "", ""])
                call[0] = delta.id or call[0]
                if delta.function:
                    call[1] = delta.function.name or call[1]
                    call[2] += delta.function.arguments or ""
    need(last == b"[DONE]", "no [DONE]")
    judged.calls = [(id_, name, text) for id_, name, text in growing.values()]
    return judged


def completions(body: dict[str, Any], raw: bytes) -> Judged:
    """Text completions."""
    judged = Judged()
    if not body.get("stream"):
        values = [json.loads(raw)]
    else:
        *datas, last = data_of(raw)
        need(last == b"[DONE]", "no [DONE]")
        values = [json.loads(data) for data in datas]
    for value in values:
        need("error" not in value, f"error {value.get('error')}")
        need(value["object"] == "text_completion", f"object {value['object']!r}")
        for choice in value["choices"]:
            need(isinstance(choice["text"], str), "a choice without text")
            judged.finish = choice["finish_reason"] or judged.finish
        usage = value.get("usage") or {}
        judged.prompt_tokens += usage.get("prompt_tokens", 0)
        judged.completion_tokens += usage.get("completion_tokens", 0)
    need(judged.finish in ("stop", "length"), f"finish_reason {judged.finish!r}")
    return judged


def embeddings(body: dict[str, Any], raw: bytes) -> Judged:
    """Embeddings: as many vectors as inputs, in the encoding asked for."""
    value = json.loads(raw)
    given = body["input"]
    count = len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1
    need(value["object"] == "list" and len(value["data"]) == count, "not a vector for every input")
    kind = str if body.get("encoding_format") == "base64" else list
    need(all(isinstance(e["embedding"], kind) for e in value["data"]), f"vectors not as {kind}")
    return Judged("stop", prompt_tokens=value["usage"]["prompt_tokens"])


def count(body: dict[str, Any], raw: bytes) -> Judged:
    """A token count of either vendor."""
    found = json.loads(raw)["input_tokens"]
    need(type(found) is int and found > 0, f"input_tokens {found!r}")
    return Judged("stop", prompt_tokens=found)


def judge(surface: Judge, body: dict[str, Any], raw: bytes) -> Judged:
    """Judge an answer of status 200. Raises ``Wrong``, also for one that can't be read."""
    try:
        return surface(body, raw)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Wrong(f"unreadable: {type(error).__name__} {error}") from error
