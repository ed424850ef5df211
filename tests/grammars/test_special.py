"""Markers that are tokens of their own, and answers in which there are no calls."""

from __future__ import annotations

import pytest

from agentspec.toolcall.format import load_format
from agentspec.toolcall.parser import CallEnd, Parser, TextDelta

from .samples import TOOLS, read

KIMI = load_format("kimi_k2")
SPECIAL = [
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|unused|>"),
]


def fed(pieces: list[str]) -> list:
    """Pieces as tokens: those that are special come as such."""
    parser, events = Parser(KIMI, TOOLS, special=SPECIAL), []
    for piece in pieces:
        events += parser.feed(piece, special=piece in SPECIAL)
    return events + parser.finish()


def test_markers_count_as_tokens_only():
    begin, argument = SPECIAL[0] + SPECIAL[2], SPECIAL[3]
    spelled = begin + "functions.ping:0" + argument + "{}"
    parser = Parser(KIMI, TOOLS, special=SPECIAL)
    assert parser.feed(spelled) + parser.finish() == [TextDelta(spelled)]
    events = fed([SPECIAL[0], SPECIAL[2], "functions.ping", ":0", argument, "{", "}", SPECIAL[4]])
    assert CallEnd(0, "ping", "{}") in events


def test_a_spelled_marker_in_an_argument_ends_nothing_and_a_token_is_spelled_out():
    head = [SPECIAL[0], SPECIAL[2], "functions.read_file:0", SPECIAL[3]]
    events = fed([*head, '{"path": "' + SPECIAL[4], SPECIAL[5], '"}', SPECIAL[4], SPECIAL[1]])
    assert CallEnd(0, "read_file", '{"path": "<|tool_call_end|><|unused|>"}') in events


def test_noncharacters_in_text_cannot_pass_for_tokens():
    (event,) = fed(["a\ufdd0b"])
    assert event == TextDelta("a\ufffdb")
    plain = Parser(KIMI, TOOLS)
    assert plain.feed("a\ufdd0b") == [TextDelta("a\ufdd0b")]


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "pythonic", "qwen3_coder"])
def test_without_calls_their_markup_is_text(name: str):
    fmt = load_format(name)
    text = fmt.render_calls([("ping", "{}")])
    assert read(Parser(fmt, {}, calls=False), list(text)).text == text
    assert read(Parser(fmt, {"ping": {}}), list(text)).calls


def test_reasoning_is_told_from_text_without_calls_too():
    found = read(
        Parser(load_format("hermes"), calls=False), list("<think>a <tool_call>{</think> b")
    )
    assert (found.text, found.reasoning) == ("b", "a <tool_call>{")
