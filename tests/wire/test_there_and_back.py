"""Translators against each other: an answer sent out, echoed by the client, and read again.

Whatever an answer says (reasoning, text, calls with their ids and arguments) must be found in the
conversation when its client sends it back; and a stream, folded, must say what the whole body says.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.wire import messages, messages_in, responses, responses_in
from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    FunctionCall,
    Message,
    ToolCall,
    ToolCallDelta,
    Usage,
    encode,
)
from agentspec.wire.messages_out import MessagesWriter
from agentspec.wire.names import ToolName, ToolNames
from agentspec.wire.pieces import Pieces
from agentspec.wire.responses_out import ResponsesWriter, Shown
from agentspec.wire.responses_tools import ToolSet

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.just("}{"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)
NAMES = st.sampled_from(["read", "clock__now", "x" * 100, "weird name", "patch"])
TOOLS = [
    {"type": "function", "name": "read", "parameters": {"type": "object"}},
    {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "now"}]},
    {"type": "function", "name": "x" * 100},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
]
NONE = ToolSet()


@st.composite
def answers(draw: st.DrawFn) -> AnswerMessage:
    """An assistant's message that a model may have written."""
    named = [(draw(NAMES), draw(OBJECTS)) for _ in range(draw(st.integers(0, 3)))]
    tools = toolset()
    calls = []
    for index, (name, values) in enumerate(named):
        known = next((flat for flat, t in tools.names.known.items() if t.name == name), name)
        if tools.names.find(known).custom:
            values = {"input": draw(TEXTS)}
        text = json.dumps(values, ensure_ascii=draw(st.booleans()))
        calls.append(ToolCall(FunctionCall(known.replace(" ", "_"), text), id=f"call_{index}"))
    message = AnswerMessage(content=draw(st.none() | TEXTS.filter(lambda t: "<" not in t)))
    if calls:
        message.tool_calls = calls
    if draw(st.booleans()):
        message.reasoning_content = draw(TEXTS)
    return message


def toolset() -> ToolSet:
    tools = ToolSet()
    tools.add([msgspec.Raw(encode(tool)) for tool in TOOLS], "tools")
    return tools


def whole(message: AnswerMessage, reason: str = "stop") -> ChatResponse:
    return ChatResponse("id", 1, "m", [Choice(0, message, reason)], usage=Usage(3, 4, 7))


@st.composite
def chunked(draw: st.DrawFn, message: AnswerMessage) -> list[ChatChunk]:
    """The same message as a stream in pieces of any size; calls may be mixed."""
    deltas: list[Delta] = []
    if message.reasoning_content:
        pieces = draw(cuts(message.reasoning_content))
        deltas += [Delta(reasoning_content=piece) for piece in pieces]
    if message.content:
        deltas += [Delta(content=piece) for piece in draw(cuts(message.content))]
    calls = [] if message.tool_calls is msgspec.UNSET else message.tool_calls
    queues = []
    for index, call in enumerate(calls):
        function = FunctionCall(call.function.name, "")
        queue = [ToolCallDelta(index, call.id, "function", function)]
        pieces = draw(cuts(call.function.arguments or ""))
        queue += [ToolCallDelta(index, function=FunctionCall(arguments=p)) for p in pieces]
        queues.append(queue)
    while queues:
        queue = draw(st.sampled_from(queues)) if draw(st.booleans()) else queues[0]
        deltas.append(Delta(tool_calls=[queue.pop(0)]))
        queues = [q for q in queues if q]
    choices = [ChunkChoice(0, delta) for delta in deltas] + [ChunkChoice(0, Delta(), "stop")]
    return [ChatChunk("id", 1, "m", [choice]) for choice in choices]


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


def said(message: Message | AnswerMessage) -> dict[str, Any]:
    """What a message says, in a form that can be compared."""
    calls = message.tool_calls
    return {
        "text": message.content or "",
        "reasoning": message.reasoning_content or "",
        "calls": [
            (c.id, c.function.name, json.loads(c.function.arguments or "{}"))
            for c in ([] if calls is msgspec.UNSET or calls is None else calls)
        ],
    }


def responses_writer() -> ResponsesWriter:
    return ResponsesWriter("k", "m", 1, Shown(tools=toolset(), sealed=True))


def messages_writer() -> MessagesWriter:
    names = ToolNames()
    names.add(ToolName("x" * 100))
    return MessagesWriter("k", "m", names, thinking="omitted")


@settings(max_examples=60, deadline=None)
@given(answers())
def test_responses_there_and_back(message):
    expected = said(message)
    writer = responses_writer()
    writer.take(Pieces("c").whole(whole(message)))
    body = writer.finished("stop", Usage(3, 4, 7))
    echoed = encode({"model": "m", "tools": TOOLS, "input": body["output"] or "none"})
    found = responses_in.translate(responses.decode_request(echoed)).request.messages
    if body["output"]:
        (back,) = found
        assert said(back) == expected


@settings(max_examples=60, deadline=None)
@given(answers())
def test_messages_there_and_back(message):
    expected = said(message)
    writer = messages_writer()
    writer.take(Pieces("c").whole(whole(message)))
    writer.finish("stop", Usage(3, 4, 7))
    body = writer.body("stop", Usage(3, 4, 7))
    echo = {"role": "assistant", "content": body["content"]}
    echoed = encode({"model": "m", "messages": [{"role": "user", "content": "?"}, echo]})
    translated = messages_in.translate(messages.decode_request(echoed), strip_billing=True)
    _, *found = translated.request.messages
    if body["content"]:
        (back,) = found
        assert said(back) == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_streams_fold_to_the_whole_answer(data):
    message = data.draw(answers())
    chunks = data.draw(chunked(message))
    for make in (responses_writer, messages_writer):
        streamed, at_once = make(), make()
        pieces = Pieces("c")
        for chunk in msgspec.json.decode(encode(chunks), type=list[ChatChunk]):
            streamed.take(pieces.read(chunk))
        streamed.take(pieces.end())
        streamed.finish(pieces.finish_reason, None)
        copy = msgspec.json.decode(encode(whole(message)), type=ChatResponse)
        at_once.take(Pieces("c").whole(copy))
        at_once.finish("stop", None)
        assert sorted_calls(folded(streamed)) == sorted_calls(folded(at_once))


def folded(writer: ResponsesWriter | MessagesWriter) -> list[dict[str, Any]]:
    made = writer.items if isinstance(writer, ResponsesWriter) else writer.blocks
    return [
        {k: v for k, v in one.items() if k != "id" or one["type"] == "tool_use"} for one in made
    ]


def sorted_calls(items: list[dict[str, Any]]) -> list[str]:
    """Mixed calls end in the order in which they became whole; the client goes by their ids."""
    return sorted(encode(item).decode() for item in items)
