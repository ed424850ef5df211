"""Calls out of pieces, as servers really send them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.wire.calls import CallGate, CallJoiner
from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
)
from agentspec.wire.errors import UpstreamFailed
from agentspec.wire.pieces import Call, Piece, Pieces


def read(*deltas: ToolCallDelta, finish: str = "tool_calls") -> list[Call]:
    pieces = Pieces("made")
    found: list[Piece] = []
    for delta in deltas:
        found += pieces.read(ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(tool_calls=[delta]))]))
    found += pieces.read(ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(), finish)]))
    return [p for p in (*found, *pieces.end()) if isinstance(p, Call)]


def call(arguments: str, index: int = 0, name: str | None = None, id: str | None = None):
    return ToolCallDelta(index, id, "function", FunctionCall(name, arguments))


def test_every_call_under_index_0():
    found = read(call("{}", name="f", id="a"), call('{"x": 1}', name="g", id="b"))
    assert [(c.id, c.name, c.arguments) for c in found] == [
        ("a", "f", "{}"),
        ("b", "g", '{"x": 1}'),
    ]


SHAPES = [
    # vLLM: another id on each piece of one call.
    ([call("", 0, "f", "a"), call('{"x"', 0, None, "b"), call(": 1}", 0, "", "c")], ["f"]),
    # Gemini's proxies: no ids, one index.
    ([call('{"x": 1}', 0, "f"), call('{"x": 1}', 0, "f")], ["f", "f"]),
    ([call('{"x": 1}', 0, "f", ""), call("", 0, "f", ""), call('{"x": 1}')], ["f", "f"]),
    # The name on every piece.
    ([call('{"x"', 0, "f"), call(": 1}", 0, "f"), call("", 0, "f")], ["f"]),
    ([call('{"x": 1}', 0, "f", "a"), call("", 0, "f", "a")], ["f"]),
    ([call('{"x": 1}', 0, "f", "a"), call("", 0, None, "b")], ["f"]),
]


@pytest.mark.parametrize(("deltas", "names"), SHAPES)
def test_only_a_name_begins_a_call(deltas: list[ToolCallDelta], names: list[str]):
    found = read(*deltas)
    assert [(c.name, c.arguments.replace(" ", "")) for c in found] == [
        (name, '{"x":1}') for name in names
    ]


SIGNED = {"google": {"thought_signature": "S"}}


@pytest.mark.parametrize(("forced", "reason"), [(False, "tool_calls"), (True, "stop")])
def test_an_answer_with_calls_ends_with_them_and_keeps_their_signatures(forced: bool, reason: str):
    gate = CallGate("c", forced=forced)
    delta = ToolCallDelta(0, "a", "function", FunctionCall("f", "{}"), extra_content=SIGNED)
    (choice,) = gate.chunk(
        ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(tool_calls=[delta]))])
    ).choices
    assert [call.extra_content for call in choice.delta.tool_calls or ()] == [SIGNED]
    end = gate.chunk(ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(), "stop")]))
    assert end.choices[0].finish_reason == reason
    again = ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(), "tool_calls")])
    assert gate.chunk(again).choices == []
    whole = ToolCall(FunctionCall("f", "{}"), id="a", extra_content=SIGNED)
    message = AnswerMessage(tool_calls=[whole])
    gate = CallGate("c", forced=forced)
    (made,) = gate.whole(ChatResponse("i", 1, "m", [Choice(0, message, "stop")])).choices
    assert made.finish_reason == reason and made.message.tool_calls == [whole]
    gate = CallGate("c")
    plain = ChatChunk("i", 1, "m", [ChunkChoice(0, Delta(content="x"), "stop")])
    assert gate.chunk(plain).choices[0].finish_reason == "stop"


def test_no_arguments_at_all_and_twice():
    assert [c.arguments for c in read(call("", name="f"))] == ["{}"]
    assert [c.arguments for c in read(call("{}", name="f"), call("{}"))] == ["{}"]


def test_ids_that_cannot_be_used_are_replaced_and_stay_apart():
    found = read(
        call("{}", 0, "f", "same"), call("{}", 1, "f", "same"), call("{}", 2, "f", "bad id!")
    )
    assert found[0].id == "same"
    assert len({c.id for c in found}) == 3 and all(c.id.isidentifier() for c in found)


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "{} x", "nul"])
def test_a_torn_call_is_an_error_unless_the_limit_cut_it(arguments):
    with pytest.raises(UpstreamFailed, match=r"JSON object|went on"):
        read(call(arguments, name="f"))
    if arguments != "{} x":
        assert read(call(arguments, name="f"), finish="length") == []


def test_what_follows_a_whole_call_is_an_error():
    with pytest.raises(UpstreamFailed, match="went on"):
        read(call('{"a": 1}', name="f"), call(', "b": 2}'))


@given(
    st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists), max_size=3),
    st.randoms(use_true_random=False),
)
def test_a_call_is_whole_with_its_last_piece(values, random):
    text, pieces = json.dumps(values, ensure_ascii=random.random() < 0.5), []
    while text:
        size = random.randint(1, 4)
        pieces.append(text[:size])
        text = text[size:]
    joiner = CallJoiner("made")
    heads = [joiner.read(call(piece, name="f")) for piece in pieces]
    assert [len(found) for found in heads] == [0] * (len(pieces) - 1) + [1]
    assert heads[-1][0].values() == values


def test_arguments_in_thousands_of_pieces_are_parsed_once(monkeypatch):
    parsed = []
    monkeypatch.setattr("agentspec.wire.calls.is_object", lambda text: not parsed.append(text))
    found = read(call('{"a": "', name="f"), *[call("}")] * 5000, call('"}'))
    assert len(found) == len(parsed) == 1


def test_an_empty_call_at_the_limit_is_dropped():
    assert read(call("", name="f"), finish="length") == []
