"""OpenAI Responses over the canonical turn; answers are kept for clients that refer to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.gateway.kept import Kept
from agentspec.gateway.surface import Caller, OpenAIErrors, Started
from agentspec.wire.canonical import body_of
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, Usage, encode
from agentspec.wire.errors import AgentspecError, InvalidRequest
from agentspec.wire.extension import SpecReport
from agentspec.wire.pieces import Pieces
from agentspec.wire.responses import ResponsesRequest, decode_request
from agentspec.wire.responses_in import Earlier, Translated, append_items, references, translate
from agentspec.wire.responses_out import ANSWER_ID, ResponsesWriter, Shown
from agentspec.wire.spelling import Name

from .reports import report_field

MAX_REFERRED_BYTES = 32 * 1024 * 1024
_SEALED = "reasoning.encrypted_content"


class ResponsesSurface:
    name = "responses"

    def __init__(self, kept: Kept):
        self.errors = OpenAIErrors()
        self._kept = kept

    async def translate(self, body: bytes, caller: Caller) -> ResponsesAsked:
        asked = decode_request(body)
        earlier = await self._earlier(asked.previous_response_id, caller.scope)
        done = translate(asked, earlier=earlier, item=(await self._items(asked, caller.scope)).get)
        keeper = Keeper(self._kept, caller.scope) if asked.store is not False else None
        return ResponsesAsked(asked, done, keeper, done.request, body_of(done.request, done.extras))

    async def _earlier(self, name: str | None, scope: str) -> Earlier | None:
        if name is None:
            return None
        found = await kept_answer(self._kept, scope, name)
        if found is None:
            raise InvalidRequest(
                f"Previous response with id '{name}' not found. {self._kept.excuse}",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return found.earlier

    async def _items(self, asked: ResponsesRequest, scope: str) -> dict[str, bytes]:
        """The JSON of the items that the request refers to."""
        names = references(asked)
        if not names:
            return {}
        found = await self._kept.get(scope, names)
        for name, where in names.items():
            if name not in found or name.startswith(ANSWER_ID):
                raise InvalidRequest(
                    f"Item with id '{name}' not found. {self._kept.excuse}",
                    param=where,
                    code="item_not_found",
                )
        if sum(map(len, found.values())) > MAX_REFERRED_BYTES:
            raise InvalidRequest(
                f"The items that 'input' refers to are larger than {MAX_REFERRED_BYTES} bytes.",
                param="input",
                code="too_many_references",
            )
        return found


class KeptAnswer(msgspec.Struct):
    """body: the response object; earlier: the conversation with its answer; input: as sent."""

    body: msgspec.Raw
    earlier: Earlier
    input: str | list[msgspec.Raw] | None = None


_ANSWER = msgspec.json.Decoder(KeptAnswer)


async def kept_answer(kept: Kept, scope: str, name: str) -> KeptAnswer | None:
    """The answer of that id. Items are kept beside the answers, under ids of other kinds.

    Raises ``InternalError`` where that can't be told.
    """
    if not name.startswith(ANSWER_ID):
        return None
    found = (await kept.get(scope, [name])).get(name)
    return None if found is None else _ANSWER.decode(found)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps an answer and its items for later turns of the same caller."""

    kept: Kept
    scope: str

    async def keep(self, writer: ResponsesWriter, body: bytes, asked: ResponsesAsked) -> None:
        items = [encode(item) for item in writer.items]
        entries = {item["id"]: raw for item, raw in zip(writer.items, items, strict=True)}
        context = asked.translated.earlier
        earlier = append_items(context, items, asked.translated.tools)
        entries[writer.id] = encode(KeptAnswer(msgspec.Raw(body), earlier, asked.asked.input))
        await self.kept.put(self.scope, entries)


@dataclass(frozen=True, slots=True)
class ResponsesAsked:
    asked: ResponsesRequest
    translated: Translated
    keeper: Keeper | None
    request: ChatRequest
    body: dict[str, msgspec.Raw]
    native: None = None

    def spelling(self) -> Iterable[Name]:
        return self.translated.spelling()

    def answer(self, started: Started) -> ResponsesAnswer:
        reasoning = self.asked.reasoning
        shown = Shown(
            tools=self.translated.tools,
            summaries=bool(reasoning and reasoning.summary not in (None, "none")),
            sealed=_SEALED in (self.asked.include or ()),
            echo=_echo(self.asked),
        )
        writer = ResponsesWriter(started.key, self.request.model, started.created_s, shown)
        return ResponsesAnswer(writer, Pieces(f"call_{started.key}"), self)


class ResponsesAnswer:
    def __init__(self, writer: ResponsesWriter, pieces: Pieces, asked: ResponsesAsked):
        self._writer = writer
        self._pieces = pieces
        self._asked = asked
        self._usage: Usage | None = None

    async def whole(self, response: ChatResponse) -> bytes:
        self._writer.take(self._pieces.whole(response))
        more = report_field(self._asked.request, response.agentspec)
        body = encode(self._writer.finished(self._pieces.finish_reason, response.usage, **more))
        await self._keep(body)
        return body

    def chunk(self, chunk: ChatChunk) -> bytes:
        if isinstance(chunk.usage, Usage):
            self._usage = chunk.usage
        return self._writer.take(self._pieces.read(chunk))

    async def end(self, usage: Usage | None, report: SpecReport | None) -> bytes:
        events = self._writer.take(self._pieces.end())
        more = report_field(self._asked.request, report)
        events += self._writer.finish(self._pieces.finish_reason, usage, **more)
        await self._keep(encode(self._writer.finished(self._pieces.finish_reason, usage, **more)))
        return events

    def failed(self, error: AgentspecError) -> bytes:
        return self._writer.fail(error, self._usage)

    async def _keep(self, body: bytes) -> None:
        if self._asked.keeper is not None:
            await self._asked.keeper.keep(self._writer, body, self._asked)


def _echo(asked: ResponsesRequest) -> dict[str, Any]:
    """The fields of a response object that repeat its request."""
    return {
        "background": False,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": asked.previous_response_id,
        "prompt_cache_key": asked.prompt_cache_key,
        "reasoning": asked.reasoning or {"effort": None, "summary": None},
        "service_tier": "default",
        "store": asked.store is not False,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "text": _text_echo(asked),
        "tool_choice": asked.tool_choice or "auto",
        "tools": asked.tools or [],
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "truncation": asked.truncation or "disabled",
        "user": asked.user,
    }


def _text_echo(asked: ResponsesRequest) -> dict[str, Any]:
    wanted = asked.text.format if asked.text else None
    verbosity = {"verbosity": (asked.text.verbosity if asked.text else None) or "medium"}
    if wanted is None or wanted.type != "json_schema":
        return {"format": {"type": wanted.type if wanted else "text"}} | verbosity
    shown = msgspec.to_builtins(wanted)
    given = {name: value for name, value in shown.items() if value is not None}
    return {"format": given} | verbosity
