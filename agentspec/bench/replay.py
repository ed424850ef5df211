"""Replays recorded chat-completions requests of real clients against a running endpoint.

A recording is a JSON file ``{client, path, body, ...}``. Each request is sent as it was recorded,
but for the model's name; the answer must be well-formed, its tool calls must satisfy the client's
own schemas, and a prompt beyond the context must be refused as ``context_length_exceeded``.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from agentspec.toolcall.check import ArgumentsChecker
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, FunctionCall, ToolCall
from agentspec.wire.sse import EventParser

COLUMNS = [
    *("client", "file", "verdict", "status", "finish_reason", "tool_calls"),
    *("prompt_tokens", "completion_tokens", "seconds", "why"),
]


@dataclass(slots=True)
class Replayed:
    """Outcome of one recording. verdict: "answered", "refused" (prompt too long) or "wrong"."""

    client: str
    file: str
    verdict: str
    status: int
    finish_reason: str | None = None
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    why: str = ""


def recordings(folder: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """(client, file name, body) of every recorded POST to /v1/chat/completions below ``folder``."""
    found = []
    for path in sorted(folder.glob("*/*.json")):
        recorded = json.loads(path.read_text())
        if recorded.get("method") == "POST" and recorded["path"].endswith("/chat/completions"):
            found.append((path.parent.name, path.name, recorded["body"]))
    return found


class _Folded:
    """A stream folded back into one answer: text, calls, finish reason, usage, how it ended."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[int, ToolCall] = {}
        self.finish: str | None = None
        self.usage = None
        self.done = False
        self.error: dict[str, Any] | None = None

    def add(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        raw = json.loads(data)
        if "error" in raw:
            self.error = raw["error"]
            return
        chunk = msgspec.convert(raw, ChatChunk)
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            self.finish = choice.finish_reason or self.finish
            if isinstance(choice.delta.content, str):
                self.text += choice.delta.content
            for delta in choice.delta.tool_calls or []:
                call = self.calls.setdefault(delta.index, ToolCall(FunctionCall("", "")))
                call.id = delta.id or call.id
                if delta.function:
                    call.function.name = delta.function.name or call.function.name
                    call.function.arguments = (call.function.arguments or "") + (
                        delta.function.arguments or ""
                    )


def _judge(request: ChatRequest, calls: list[ToolCall], finish: str | None) -> str:
    """Why the answer is wrong, or "" when it is well-formed and every call is valid."""
    if finish not in ("stop", "length", "tool_calls"):
        return f"finish_reason {finish!r}"
    if finish == "tool_calls" and not calls:
        return "finish_reason tool_calls without a call"
    if calls and not request.tools:
        return "a tool call, but no tools were sent"
    checker = ArgumentsChecker(request.tools or [])
    for call in calls:
        if not call.id:
            return "a call without id"
        fault = checker.check(call.function.name or "", call.function.arguments or "")
        if fault:
            return f"{call.function.name}: {fault}"
    return ""


async def replay_one(
    session: aiohttp.ClientSession, url: str, client: str, name: str, body: dict[str, Any]
) -> Replayed:
    """Send one recorded body to ``url`` (.../v1) and judge the answer."""
    request = msgspec.convert(body, ChatRequest)
    began = time.perf_counter()
    async with session.post(f"{url}/chat/completions", json=body) as response:
        raw = await response.read()
        result = Replayed(client, name, "wrong", response.status)
        result.seconds = round(time.perf_counter() - began, 3)
        if response.status == 400:
            error = json.loads(raw)["error"]
            long = error["code"] == "context_length_exceeded"
            result.verdict, result.why = "refused" if long else "wrong", error["message"][:160]
            return result
        if response.status != 200:
            result.why = raw[:160].decode(errors="replace")
            return result
    if body.get("stream"):
        folded = _Folded()
        for data in EventParser().feed(raw):
            folded.add(data)
        calls, usage, result.finish_reason = (
            list(folded.calls.values()),
            folded.usage,
            folded.finish,
        )
        result.why = (
            f"error chunk {folded.error}"
            if folded.error
            else _judge(request, calls, folded.finish)
            if folded.done
            else "no [DONE]"
        )
    else:
        answer = msgspec.json.decode(raw, type=ChatResponse)
        choice = answer.choices[0]
        calls = choice.message.tool_calls or []
        usage, result.finish_reason = answer.usage, choice.finish_reason
        result.why = _judge(request, calls, choice.finish_reason)
    result.tool_calls = len(calls)
    if usage:
        result.prompt_tokens, result.completion_tokens = (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
    result.verdict = "wrong" if result.why else "answered"
    return result


async def _replay(url: str, folder: Path, model: str, max_tokens: int | None) -> list[Replayed]:
    results = []
    timeout = aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for client, name, recorded in recordings(folder):
            body = {**recorded, "model": model}
            if max_tokens is not None and "max_completion_tokens" not in body:
                body["max_tokens"] = min(max_tokens, body.get("max_tokens") or max_tokens)
            results.append(await replay_one(session, url, client, name, body))
    return results


def replay(url: str, folder: Path, model: str, max_tokens: int | None = None) -> list[dict]:
    """Replay every recording below ``folder``; ``max_tokens`` caps each answer's length."""
    return [asdict(result) for result in asyncio.run(_replay(url, folder, model, max_tokens))]
