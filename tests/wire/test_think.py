"""Reasoning written into the text: the same in any cut, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.wire.think import Splitter, split


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>why</think>yes", "why", "yes"),
        ("\n<think>\nwhy\n</think>\n\nyes ", "why", "yes "),
        ("<think></think>yes", "", "yes"),
        ("<think>why", "why", ""),
        ("<think>a </thin b</think>c", "a </thin b", "c"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("yes <think>no</think>", "", "yes <think>no</think>"),
        ("<thinker>", "", "<thinker>"),
        ("<th", "", "<th"),
        ("  plain", "", "  plain"),
        ("", "", ""),
    ],
)
def test_whole_texts(text, reasoning, answer):
    assert split(text) == (reasoning, answer)


PIECES = st.sampled_from(["<think>", "</think>", "<", "/", "think>", " ", "\n", "a", "é", "</thin"])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join), st.lists(st.integers(1, 5), max_size=30))
def test_any_cut_says_the_same(text, sizes):
    splitter, rest, found = Splitter(), text, []
    for size in sizes:
        found.append(splitter.feed(rest[:size]))
        rest = rest[size:]
    found += [splitter.feed(rest), splitter.end()]
    assert ("".join(f[0] for f in found), "".join(f[1] for f in found)) == split(text)
