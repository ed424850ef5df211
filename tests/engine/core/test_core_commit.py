"""Committing along a verdict: forced spans, stops, and what is dropped behind them."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.engine.commit import advance, begin
from agentspec.engine.constrain import ConstraintViolated
from agentspec.engine.sequence import Sequence
from tests.engine.core.toy import (
    AB,
    CLOSE,
    COMMA,
    DEEP,
    EOS,
    JSON_LIKE,
    OPEN,
    TOKEN_BYTES,
    TOOL_LIKE,
    A,
    B,
    C,
    ToyClock,
)
from tests.engine.core.world import make


def begun(**options: Any) -> Sequence:
    """A sequence whose forced start is committed."""
    request = make(stop_ids=frozenset({EOS}), **options)
    sequence = Sequence.of(request, 0, (), ToyClock())
    sequence.start_constraint(ToyClock())
    begin(sequence, TOKEN_BYTES)
    return sequence


def output(sequence: Sequence) -> list[int]:
    return sequence.tokens[sequence.view.prompt_length :]


def text(sequence: Sequence) -> str:
    return sequence.emission.take()[0]


def test_forced_tokens_are_committed_before_and_after_the_chosen_ones():
    sequence = begun(constraint=JSON_LIKE)
    assert output(sequence) == [OPEN, A, B]
    assert advance(sequence, [A, COMMA], TOKEN_BYTES) == [True, True]
    assert output(sequence) == [OPEN, A, B, A, COMMA, A, B]
    assert sequence.tally.sources["forced"].accepted == 5


def test_candidates_that_spell_the_forced_span_go_on_behind_it():
    sequence = begun(constraint=JSON_LIKE)
    kept = advance(sequence, [A, COMMA, A, B, B], TOKEN_BYTES)
    assert kept == [True, True, False, False, True]
    assert output(sequence)[-5:] == [A, COMMA, A, B, B]


def test_candidates_that_leave_the_forced_span_are_dropped():
    sequence = begun(constraint=JSON_LIKE)
    assert advance(sequence, [A, COMMA, A, A, A], TOKEN_BYTES) == [True, True, False]
    assert output(sequence)[-4:] == [A, COMMA, A, B]
    sequence = begun(constraint=JSON_LIKE)
    assert advance(sequence, [A, COMMA, B], TOKEN_BYTES) == [True, True]
    assert output(sequence)[-4:] == [A, COMMA, A, B]


def test_nothing_follows_the_end():
    complete = begun(constraint=JSON_LIKE)
    assert advance(complete, [A, CLOSE, A], TOKEN_BYTES) == [True, True]
    eos = begun()
    assert advance(eos, [A, EOS, A], TOKEN_BYTES) == [True, True]
    stopped = begun(stop=(b"bc",))
    assert advance(stopped, [AB, C, A], TOKEN_BYTES) == [True, True]
    full = begun(max_tokens=2)
    assert advance(full, [A, B, C], TOKEN_BYTES) == [True, True]
    ended = [complete, eos, stopped, full]
    assert [s.finish_reason for s in ended] == ["stop", "stop", "stop", "length"]
    assert [text(s) for s in ended] == ["{aba}", "a", "a", "ab"]


def test_stop_strings_mean_nothing_from_the_opening_token_on():
    sequence = begun(constraint=TOOL_LIKE, stop=(b"{", b"a}", b"x"))
    advance(sequence, [C, OPEN, A, B, A, CLOSE], TOKEN_BYTES)
    assert not sequence.finished and text(sequence) == "c{aba}"


def test_the_end_of_text_inside_the_grammar_is_an_error():
    sequence = begun(constraint=TOOL_LIKE)
    advance(sequence, [OPEN], TOKEN_BYTES)
    with pytest.raises(ConstraintViolated):
        advance(sequence, [EOS], TOKEN_BYTES)


def test_an_open_text_is_closed_before_the_limit():
    sequence = begun(constraint=JSON_LIKE, max_tokens=7)
    assert advance(sequence, [DEEP, A, A], TOKEN_BYTES) == [True, True]
    assert text(sequence) == "{ab[a]}" and sequence.finish_reason == "stop"
    assert sequence.remaining == 0


def test_a_call_that_could_not_be_closed_is_not_opened():
    sequence = begun(constraint=TOOL_LIKE, max_tokens=5)
    assert advance(sequence, [C, OPEN, A], TOKEN_BYTES) == [True]
    assert text(sequence) == "c" and sequence.finish_reason == "length"


def test_a_limit_that_holds_no_legal_text_is_a_plain_cut():
    sequence = begun(constraint=JSON_LIKE, max_tokens=4)
    assert advance(sequence, [A], TOKEN_BYTES) == [True]
    assert text(sequence) == "{aba" and sequence.finish_reason == "length"
