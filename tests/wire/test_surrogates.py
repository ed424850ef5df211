"""Surrogate halves in two events, against Python's own reading of the joined text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.wire.sse import EventParser
from agentspec.wire.surrogates import SurrogateJoiner, mended


def units(text: str) -> list[str]:
    """The text's UTF-16 units, each as JSON writes it."""
    raw = text.encode("utf-16-be")
    return [f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2)]


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from('a"\\é🌍👋🏽'), min_size=1), st.data())
def test_a_text_cut_between_any_two_units_is_whole_again(text, data):
    written = units(text)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(written)), max_size=4)))
    bounds = zip([0, *cuts], [*cuts, len(written)], strict=True)
    pieces = ["".join(written[a:b]) for a, b in bounds]
    stream = "".join(f'data: {{"x": {{"d": "{piece}"}}}}\n\n' for piece in pieces)
    found = [json.loads(event)["x"]["d"] for event in EventParser().feed(stream.encode())]
    assert "".join(found) == text
    assert all(not 0xD800 <= ord(c) <= 0xDFFF for piece in found for c in piece)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"a\\\\\\ude00"', "a\\\\\\ude00"),
        (r'"\ude00x"', "\ufffdx"),
        (r'"\ud83dx"', "\ufffdx"),
        (r'"\ud83d\n"', "\ufffd\n"),
        (r'"\ud83d"', ""),
    ],
)
def test_what_one_event_holds(written, read):
    assert json.loads(SurrogateJoiner().mend(written.encode())) == read


def test_events_without_text_may_stand_between():
    joiner = SurrogateJoiner()
    events = [rb'{"d":"a\ud83d"}', b'{"usage":{}}', rb'{"d":"\ude00b"}', rb'{"d":"\ude00"}']
    found = [json.loads(joiner.mend(event)).get("d") for event in events]
    assert found == ["a", None, "😀b", "\ufffd"]


def test_halves_in_text_within_json_become_replacements_and_pairs_stay():
    written = r'{"a": "\ud83d", "b": "\ude00x", "c": "\ud83d\ude00", "d": "\\ud83d", "e": "é"}'
    found = json.loads(mended(written))
    assert found == {"a": "\ufffd", "b": "\ufffdx", "c": "😀", "d": "\\ud83d", "e": "é"}
    assert mended("plain \\u00e9") == "plain \\u00e9"
