"""The suffix automaton against brute force over every substring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.draft.automaton import ROOT, Cursor, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 2), max_size=24)


def _ends(text: list[int], part: list[int]) -> list[int]:
    """Positions after each occurrence of ``part``."""
    size = len(part)
    return [i for i in range(size, len(text) + 1) if text[i - size : i] == part]


def _longest_repeated_suffix(text: list[int]) -> int:
    """Of suffixes that also occur elsewhere: the length of the longest."""
    return max(k for k in range(len(text)) if k == 0 or len(_ends(text, text[-k:])) > 1)


def _longest_known_suffix(text: list[int], known: list[int]) -> int:
    return max(k for k in range(len(text) + 1) if k == 0 or _ends(known, text[-k:]))


def _state(automaton: SuffixAutomaton, part: list[int]) -> int:
    state = ROOT
    for token in part:
        state = automaton.children[state][token]
    return state


def _check_all_substrings(automaton: SuffixAutomaton, text: list[int]) -> None:
    for start in range(len(text)):
        for stop in range(start + 1, len(text) + 1):
            part = text[start:stop]
            state = _state(automaton, part)
            ends = _ends(text, part)
            assert automaton.count[state] == len(ends)
            assert automaton.end[state] == max(ends)


@given(TEXTS)
def test_longest_repeated_suffix(text: list[int]):
    automaton = SuffixAutomaton()
    for size, token in enumerate(text, start=1):
        automaton.extend([token])
        link = automaton.link[automaton.last]
        assert automaton.length[link] == _longest_repeated_suffix(text[:size])


@given(TEXTS)
def test_occurrences_counted_token_by_token(text: list[int]):
    automaton = SuffixAutomaton()
    for token in text:
        automaton.extend([token])
    _check_all_substrings(automaton, text)


@given(TEXTS, TEXTS, st.integers(0, 2))
def test_occurrences_counted_in_bulk_and_after_it(text: list[int], more: list[int], token: int):
    """Long texts are counted at once; what follows them, one by one."""
    filler = list(range(10, 10 + 300))
    automaton = SuffixAutomaton(text + filler)
    automaton.extend([*more, token])
    whole = text + filler + [*more, token]
    for part in ([token], more[-3:], text[:2], [*more[-1:], token]):
        if part:
            state = _state(automaton, part)
            assert automaton.count[state] == len(_ends(whole, part))
            assert automaton.end[state] == max(_ends(whole, part))


def test_bulk_and_single_steps_agree():
    text = [i * i % 7 for i in range(400)]
    bulk, single = SuffixAutomaton(text), SuffixAutomaton()
    for token in text:
        single.extend([token])
    assert bulk.children == single.children
    assert bulk.link == single.link and bulk.length == single.length


@given(TEXTS, st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=24))
def test_cursor_while_both_texts_grow(known: list[int], steps: list[tuple[bool, int]]):
    """Growth of the automaton neither moves a match nor lengthens it; the next token may use it."""
    automaton = SuffixAutomaton(known)
    cursor, known, text = Cursor(automaton), list(known), []
    for grows, token in steps:
        if grows:
            automaton.extend([token])
            known.append(token)
        else:
            before = cursor.where()[1]
            cursor.feed([token])
            text.append(token)
            matched = cursor.where()[1]
            assert matched <= before + 1
        state, matched = cursor.where()
        part = text[len(text) - matched :]
        assert state == _state(automaton, part)


@given(TEXTS, TEXTS)
def test_cursor_finds_the_longest_known_suffix(known: list[int], text: list[int]):
    cursor = Cursor(SuffixAutomaton(known))
    for size, token in enumerate(text, start=1):
        cursor.feed([token])
        assert cursor.where()[1] == _longest_known_suffix(text[:size], known)


def test_size_is_linear():
    """At most 2n states, also for the text that needs the most."""
    for text in ([0] * 500, [0] + [1] * 500, [i * i % 11 for i in range(500)]):
        automaton = SuffixAutomaton()
        for token in text:
            automaton.extend([token])
        assert len(automaton.link) <= 2 * len(text)
        assert sum(map(len, automaton.children)) <= 3 * len(text)


def test_separators_are_tokens_of_their_own():
    automaton = SuffixAutomaton([1, 2, -1, 1, 3])
    assert set(automaton.children[_state(automaton, [1])]) == {2, 3}
    assert set(automaton.children[_state(automaton, [2])]) == {-1}
