"""50,000 cases: translators must translate or refuse, and lose nothing; SSE must survive all cuts.

Left out of the default suite: ``make test-fuzz``. Seeded, so that a case that fails, fails again:
its number is in the message.
"""

from __future__ import annotations

import collections
import json
import logging
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agentspec.wire import chat, completions, messages, messages_in, responses, responses_in, sse
from agentspec.wire.calls import CallGate
from agentspec.wire.canonical import body_of
from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    encode,
)
from agentspec.wire.errors import InvalidRequest, UpstreamFailed
from agentspec.wire.messages_out import MessagesWriter
from agentspec.wire.names import ToolNames
from agentspec.wire.pieces import Pieces
from agentspec.wire.responses_out import ResponsesWriter, Shown
from agentspec.wire.responses_tools import ToolSet
from tests.fuzz import mutate, seeds

pytestmark = pytest.mark.fuzz
log = logging.getLogger(__name__)


def _responses(raw: bytes) -> ChatRequest:
    asked = responses.decode_request(raw)
    kept = encode({"type": "message", "role": "user", "content": "kept"})
    found = dict.fromkeys(responses_in.references(asked), kept)
    return responses_in.translate(asked, item=found.get).request


def _messages(raw: bytes) -> ChatRequest:
    return messages_in.translate(messages.decode_request(raw), strip_billing=True).request


def _completions(raw: bytes) -> ChatRequest:
    return completions.translate(completions.decode_request(raw))


SURFACES: dict[str, tuple[dict[str, Any], Callable[[bytes], ChatRequest]]] = {
    "chat": (seeds.CHAT, chat.decode_request),
    "responses": (seeds.RESPONSES, _responses),
    "messages": (seeds.MESSAGES, _messages),
    "completions": (seeds.COMPLETIONS, _completions),
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(("how", "cases"), [("values", 4_500), ("bytes", 1_500)])
def test_requests_are_translated_or_refused(surface, how, cases):
    """24,000 cases. What is translated must be a chat request that reads back the same."""
    seed, translate = SURFACES[surface]
    rng = random.Random(f"{surface}-{how}")
    counts: collections.Counter[str] = collections.Counter()
    for number in range(cases):
        if how == "values":
            raw = json.dumps(mutate.mutated(rng, seed)).encode()
        else:
            raw = mutate.damaged(rng, json.dumps(seed, ensure_ascii=False).encode())
        try:
            request = translate(raw)
        except InvalidRequest as refused:
            assert refused.message
            counts["refused"] += 1
            continue
        except RecursionError:
            assert surface == "chat", f"case {number}"  # the surface refuses it
            counts["refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"case {number}: {raw!r}") from error
        again = msgspec.json.decode(encode(body_of(request)), type=ChatRequest)
        assert again.messages == request.messages, f"case {number}"
        assert again.tools == request.tools, f"case {number}"
        counts["translated"] += 1
    log.info("%s, %s: %d cases, %s", surface, how, cases, dict(counts))
    assert counts["translated"] and counts["refused"]


def _answer(rng: random.Random) -> AnswerMessage:
    message = AnswerMessage(content="a" + mutate.text(rng).replace("<", ""))
    if rng.random() < 0.5:
        message.reasoning_content = mutate.text(rng)
    calls = [
        ToolCall(FunctionCall("read", json.dumps(_object(rng), ensure_ascii=False)), id=f"c{i}")
        for i in range(rng.randint(0, 3))
    ]
    if calls:
        message.tool_calls = calls
    return message


def _object(rng: random.Random) -> dict[str, Any]:
    return {mutate.text(rng, 4): mutate.value(rng) for _ in range(rng.randint(0, 3))}


def _pieces(rng: random.Random, text: str) -> list[str]:
    borders = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randint(0, 4)))
    return [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]


def _stream(rng: random.Random, message: AnswerMessage) -> list[ChatChunk]:
    """The message in pieces, its calls mixed."""
    deltas = []
    if message.reasoning_content:
        deltas += [Delta(reasoning_content=p) for p in _pieces(rng, message.reasoning_content)]
    deltas += [Delta(content=p) for p in _pieces(rng, message.content or "")]
    queues = []
    for index, call in enumerate(_calls(message)):
        head = ToolCallDelta(index, call.id, "function", FunctionCall(call.function.name, ""))
        more = _pieces(rng, call.function.arguments or "")
        queues.append(
            [head, *(ToolCallDelta(index, None, None, FunctionCall(None, p)) for p in more)]
        )
    while queues:
        queue = rng.choice(queues)
        deltas.append(Delta(tool_calls=[queue.pop(0)]))
        queues = [queue for queue in queues if queue]
    choices = [ChunkChoice(0, delta) for delta in deltas] + [ChunkChoice(0, Delta(), "stop")]
    return [ChatChunk("id", 1, "m", [choice]) for choice in choices]


def _calls(message: AnswerMessage) -> list[ToolCall]:
    return [] if message.tool_calls is msgspec.UNSET else message.tool_calls


def _said(content: Any, reasoning: Any, calls: Any) -> dict[str, Any]:
    named = [] if calls is msgspec.UNSET or calls is None else calls
    return {
        "content": content or "",
        "reasoning": reasoning or "",
        "calls": sorted((c.id, json.dumps(json.loads(c.function.arguments))) for c in named),
    }


def _back(surface: str, chunks: list[ChatChunk]) -> dict[str, Any]:
    """The answer sent out in a surface's protocol, echoed, and read again."""
    pieces = Pieces("c")
    if surface == "responses":
        writer = ResponsesWriter("k", "m", 1, Shown(tools=ToolSet(), sealed=True))
    else:
        writer = MessagesWriter("k", "m", ToolNames(), thinking="omitted")
    for chunk in chunks:
        writer.take(pieces.read(chunk))
    writer.take(pieces.end())
    writer.finish(pieces.finish_reason, None)
    if isinstance(writer, ResponsesWriter):
        last = _responses(encode({"model": "m", "input": writer.items})).messages[-1]
    else:
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": writer.blocks}]
        last = _messages(encode({"model": "m", "messages": said})).messages[-1]
    return _said(last.content, last.reasoning_content, last.tool_calls)


def _gated(chunks: list[ChatChunk]) -> dict[str, Any]:
    """The answer as a chat client folds it; every call must come in one delta."""
    gate = CallGate("c")
    folded = AnswerMessage(content="", reasoning_content="", tool_calls=[])
    for chunk in chunks:
        for choice in gate.chunk(chunk).choices:
            delta = choice.delta
            folded.content = (folded.content or "") + (delta.content or "")
            folded.reasoning_content = str(folded.reasoning_content) + (
                delta.reasoning_content or ""
            )
            for call in delta.tool_calls or ():
                assert call.function is not None and call.index == len(_calls(folded))
                _calls(folded).append(ToolCall(call.function, id=call.id))
    gate.end()
    return _said(folded.content, folded.reasoning_content, folded.tool_calls)


def test_answers_lose_nothing():
    """10,000 answers in pieces, through the gate of chat and there and back by both others."""
    rng = random.Random("answers")
    calls = 0
    for number in range(10_000):
        message = _answer(rng)
        calls += len(_calls(message))
        raw = encode(_stream(rng, message))
        expected = _said(message.content, message.reasoning_content, message.tool_calls)
        for way in ("chat", "responses", "messages"):
            chunks = msgspec.json.decode(raw, type=list[ChatChunk])
            found = _gated(chunks) if way == "chat" else _back(way, chunks)
            assert found == expected, f"case {number}, {way}"
    log.info("answers: 10000 cases with %d calls, each by 3 ways", calls)


def test_torn_calls_never_pass():
    """4,000 calls cut anywhere: dropped at the limit, else an error."""
    rng = random.Random("torn")
    counts: collections.Counter[str] = collections.Counter()
    for number in range(4_000):
        whole = json.dumps(_object(rng) | {"k": mutate.text(rng)}, ensure_ascii=False)
        torn = whole[: rng.randrange(1, len(whole))]
        reason = rng.choice(("stop", "tool_calls", "length"))
        if rng.random() < 0.5:
            call = ToolCall(FunctionCall("f", torn), id="c")
            answer = AnswerMessage(tool_calls=[call])
            response = ChatResponse("id", 1, "m", [Choice(0, answer, reason)])
            ways = [lambda r=response: _calls(CallGate("c").whole(r).choices[0].message)]
        else:
            head = ToolCallDelta(0, "c", "function", FunctionCall("f", ""))
            more = [ToolCallDelta(0, function=FunctionCall(None, p)) for p in _pieces(rng, torn)]
            choices = [ChunkChoice(0, Delta(tool_calls=[delta])) for delta in (head, *more)]
            choices.append(ChunkChoice(0, Delta(), reason))
            chunks = [ChatChunk("id", 1, "m", [choice]) for choice in choices]
            ways = [lambda c=chunks: _gated(c)["calls"]]
        for way in ways:
            try:
                passed = way()
            except UpstreamFailed as error:
                assert error.code == "malformed_tool_call" and reason != "length", f"case {number}"
                counts["error"] += 1
            else:
                assert passed == [] and reason == "length", f"case {number}: {torn!r}"
                counts["dropped"] += 1
    log.info("torn calls: 4000 cases, %s", dict(counts))
    assert counts["error"] and counts["dropped"]


def test_sse_survives_all_cuts():
    """8,000 streams of any values, with comments, ids and both newlines, in any pieces."""
    rng = random.Random("sse")
    total = 0
    for number in range(8_000):
        values = [mutate.value(rng) for _ in range(rng.randint(0, 6))]
        raw = b""
        for value in values:
            raw += rng.choice((b"", sse.KEEPALIVE, b"id: 7\n", b"retry: 3\n", b"event: x\n"))
            raw += sse.event(value)
        raw = (raw + sse.DONE).replace(b"\n", rng.choice((b"\n", b"\r\n")))
        parser = sse.EventParser()
        found = [data for piece in mutate.cut(rng, raw) for data in parser.feed(piece)]
        assert [json.loads(data) for data in found[:-1]] == values, f"case {number}"
        assert found[-1] == b"[DONE]" and parser.idle, f"case {number}"
        total += len(values)
    log.info("sse: 8000 streams with %d events", total)


def test_damaged_sse_is_read_the_same_in_any_pieces():
    """4,000 damaged streams: no crash, and what is found doesn't depend on the cuts."""
    rng = random.Random("damaged")
    total = 0
    for number in range(4_000):
        raw = b"".join(sse.named_event("e", mutate.value(rng)) for _ in range(rng.randint(1, 5)))
        raw = mutate.damaged(rng, raw)
        at_once, in_pieces = sse.EventParser(), sse.EventParser()
        expected = list(at_once.feed(raw))
        found = [data for piece in mutate.cut(rng, raw) for data in in_pieces.feed(piece)]
        assert found == expected and at_once.idle == in_pieces.idle, f"case {number}"
        total += len(found)
    log.info("damaged sse: 4000 streams with %d events", total)
