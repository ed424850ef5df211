"""Formats whose marks are tokens of their own: those tokens, not their letters, make calls."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tokenizers import AddedToken

from agentspec.engine.constrain.factory import ConstraintFactory
from agentspec.engine.emission import Emission
from agentspec.engine.reading import CallsOrText, MarkedText
from agentspec.toolcall.choice import Function, OutputSpec
from agentspec.toolcall.format import load_format
from agentspec.toolcall.marks import Marks, special_spellings
from agentspec.toolcall.parser import CallEnd, Parser, TextDelta

from .conftest import EOS, IM_END, Small

SPELLINGS = {
    "kimi_k2": [
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ],
    "deepseek_v31": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ],
    "deepseek_v3": [
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<think>"),
    ],
    "mistral_args": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    "mistral_list": ["[TOOL_CALLS]"],
    "harmony": ["<|channel|>", "<|message|>", "<|constrain|>", "<|start|>"],
    "hermes": ["<tool_call>", "</tool_call>"],
}
TOOLS: dict[str, Any] = {
    "read": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "ping": {"type": "object", "properties": {}, "additionalProperties": False},
}


class Marked(Small):
    """A small vocabulary with a format's marks as special tokens."""

    def __init__(self, name: str):
        super().__init__(merges=120)
        self.format = load_format(name)
        spellings = SPELLINGS[name]
        self.tokenizer.add_special_tokens([AddedToken(s, special=True) for s in spellings])
        self.size = self.tokenizer.get_vocab_size()
        self.ids: list[int] = [self.tokenizer.get_vocab()[s] for s in spellings]
        self.token_bytes = [*self.token_bytes, *(s.encode() for s in spellings)]
        self.special = frozenset({EOS, IM_END, *self.ids})
        self.marks = Marks.of(
            self.format, special_spellings(self.token_bytes, self.special, frozenset({EOS}))
        )
        self.compiler = ConstraintFactory(
            token_bytes=self.token_bytes,
            eos_ids=[EOS],
            special_ids=self.special,
            hf_tokenizer_json=self.tokenizer.to_str(),
            vocab_size=self.size,
        )

    def session(self, calls: Any) -> Any:
        functions = tuple(Function(n, s, "tools") for n, s in TOOLS.items())
        spec = OutputSpec(
            format=self.format,
            calls=calls,
            functions=functions,
            max_calls=min(3, self.format.max_calls),
        )
        return self.compiler.compile(spec).session()

    def text(self, tokens: list[int]) -> str:
        """As the engine hands it on."""
        emission = Emission((), wants_infos=False)
        for place, token in enumerate(tokens):
            if (mark := self.marks.characters.get(token)) is not None:
                emission.push_mark(place, mark)
            else:
                emission.push(place, self.token_bytes[token], literal=True)
        emission.finish()
        return emission.take()[0]

    def events(self, text: str) -> list[Any]:
        parser = Parser(self.format, TOOLS, special=self.marks.ids)
        reader = MarkedText(parser, self.marks)
        return [*reader.feed(text), *reader.finish()]


@pytest.fixture(scope="module", params=SPELLINGS)
def marked(request: pytest.FixtureRequest) -> Marked:
    return Marked(request.param)


def calls_of(events: list[Any]) -> list[tuple[str, Any]]:
    return [(e.name, json.loads(e.arguments_text)) for e in events if isinstance(e, CallEnd)]


def test_all_marks_are_found(marked: Marked):
    assert set(marked.marks.characters) == set(marked.ids)


def test_calls_walked_by_chance_are_read_back_from_their_tokens(marked: Marked):
    for seed in range(12):
        pick, session, out = random.Random(seed), marked.session("must"), []
        for _ in range(pick.choice((0, 6, 25, 60))):
            if session.must_stop:
                break
            token = pick.choice(sorted(marked.allowed(session)))
            if token == EOS:
                break
            session.accept((token,))
            out.append(token)
        closing = session.closing(2000)
        assert closing is not None
        out += closing
        assert any(token in marked.ids for token in out)
        calls = calls_of(marked.events(marked.text(out)))
        assert calls and all(name in TOOLS for name, _ in calls)
        assert all(args == {} or isinstance(args["path"], str) for _, args in calls)


def test_the_token_opens_a_call_and_its_letters_do_not(marked: Marked):
    opening = marked.tokenizer.encode(marked.format.open, add_special_tokens=False).ids
    session = marked.session("may")
    session.accept(opening)
    assert session.in_grammar
    letters = [
        t for b in marked.format.open.encode() for t in (marked.token_bytes.index(bytes([b])),)
    ]
    session = marked.session("may")
    session.accept(letters)
    assert not session.in_grammar
    session.rollback(len(letters))
    session.accept(opening)
    assert session.in_grammar and session.closing(500) is not None


def test_a_draft_may_open_a_call_by_its_token(marked: Marked):
    opening = marked.tokenizer.encode(marked.format.open, add_special_tokens=False).ids
    session = marked.session("may")
    rows = marked.rows(len(opening) + 1)
    assert session.masks(opening, rows) == len(opening)


def test_letters_of_a_mark_in_an_argument_are_text(marked: Marked):
    mark = SPELLINGS[marked.format.name][-1]
    text = marked.marks.marked(marked.format.render_calls([("read", json.dumps({"path": "@@"}))]))
    events = marked.events(text.replace("@@", mark))
    assert calls_of(events) == [("read", {"path": mark})]


def test_a_character_is_not_joined_across_a_mark(marked: Marked):
    token = marked.ids[0]
    half = [marked.token_bytes.index(bytes([b])) for b in "é".encode()]
    text = marked.text([half[0], token, half[1]])
    assert text == "\ufffd" + marked.marks.characters[token] + "\ufffd"


def test_no_marks_where_they_would_stand_inside_of_arguments():
    assert Marks.of(load_format("gemma4"), {"<|tool_call>": 5, '<|"|>': 6}) == Marks()
    assert Marks.of(load_format("gemma4"), {"<|tool_call>": 5}).ids == {"<|tool_call>": 5}


def test_an_answer_is_told_from_calls_by_the_token():
    fmt = load_format("hermes")
    marks = Marks.of(fmt, {"<tool_call>": 7, "</tool_call>": 8})
    for text, calls in ((fmt.render_calls([("ping", "{}")]), 1), ('{"a": "<tool_call>"}', 0)):
        parser = MarkedText(Parser(fmt, TOOLS, special=marks.ids), marks)
        reader = CallsOrText(marks.marked(fmt.open), parser)
        events = [*reader.feed(marks.marked(text) if calls else text), *reader.finish()]
        assert len(calls_of(events)) == calls
        assert calls or events == [TextDelta(text)]
