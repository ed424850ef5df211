"""``/v1/responses/compact``: a conversation becomes a summary, which the model itself writes.

The answer is one item that the client puts in place of what it summarised; see ``wire/opaque.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.gateway.surface import Caller, Started
from agentspec.wire.canonical import body_of
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Message, Usage, encode
from agentspec.wire.errors import AgentspecError, InvalidRequest, UpstreamFailed
from agentspec.wire.extension import SpecReport
from agentspec.wire.opaque import seal
from agentspec.wire.responses_out import usage_body
from agentspec.wire.spelling import Name
from agentspec.wire.think import split

from .responses import ResponsesAsked, ResponsesSurface

MAX_TOKENS = 2048
"""The longest summary where the client sets no limit: it is to be short, whatever the model."""

PROMPT = (
    "Summarise the conversation above, so that another assistant can go on from your summary "
    "alone: what is wanted, what was done and found (with names of files, commands and decisions), "
    "and what remains to be done. Write only the summary."
)

CUT = "\n[This summary was cut off here: ask for what may be missing.]"
"""Behind a summary that reached its limit: whoever goes on from it is to know."""


class CompactionSurface:
    name = "compact"

    def __init__(self, responses: ResponsesSurface):
        self.errors = responses.errors
        self._responses = responses

    async def translate(self, body: bytes, caller: Caller) -> CompactionAsked:
        asked: ResponsesAsked = await self._responses.translate(body, caller)
        if asked.request.stream:
            raise InvalidRequest("A compaction is not streamed.", param="stream")
        request = msgspec.structs.replace(
            asked.request,
            messages=[*asked.request.messages, Message("user", PROMPT)],
            max_completion_tokens=asked.request.token_limit or MAX_TOKENS,
            tools=None,
            tool_choice=None,
            parallel_tool_calls=None,
            response_format=None,
        )
        return CompactionAsked(request, body_of(request), asked.spelling)


@dataclass(frozen=True, slots=True)
class CompactionAsked:
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    spelling: Callable[[], Iterable[Name]]
    native: None = None

    def answer(self, started: Started) -> CompactionAnswer:
        return CompactionAnswer(started)


class CompactionAnswer:
    def __init__(self, started: Started):
        self._started = started

    async def whole(self, response: ChatResponse) -> bytes:
        choice = response.choices[0]
        summary = split(choice.message.content or "")[1]
        if not summary:
            raise UpstreamFailed("The model wrote no summary.")
        if choice.finish_reason in ("length", "content_filter"):
            summary += CUT
        key = self._started.key
        item: dict[str, Any] = {
            "id": f"cmp_{key}",
            "type": "compaction",
            "encrypted_content": seal(summary),
        }
        return encode(
            {
                "id": f"resp_{key}",
                "object": "response.compaction",
                "created_at": self._started.created_s,
                "output": [item],
                "usage": usage_body(response.usage),
            }
        )

    def chunk(self, chunk: ChatChunk) -> bytes:
        raise AssertionError("a compaction is not streamed")

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        raise AssertionError("a compaction is not streamed")

    def failed(self, error: AgentspecError) -> bytes:
        raise AssertionError("a compaction is not streamed")
