"""Free text until the marker: the machine against a plain search in the text's bytes."""

from __future__ import annotations

import json
import random

import pytest

from agentspec.engine.constrain import ConstraintViolated
from agentspec.engine.constrain.trigger import Marker
from agentspec.engine.constrain.vocab import Vocab
from agentspec.resources import data_dir

from .conftest import EOS, IM_END, bits, tools_spec

MARKER = b"<tool_call>"
SAMPLES = sorted((data_dir("grammars") / "smollm2" / "samples").glob("*.txt"))
TOOL = {"note": {"type": "object", "properties": {"text": {"type": "string"}}}}


@pytest.fixture
def session(factories):
    return factories().compile(tools_spec(TOOL, calls="may")).session()


def expected(text: bytes, piece: bytes) -> str:
    """What a plain search says of appending ``piece`` to free ``text``."""
    found = (text + piece).find(MARKER)
    if found < 0:
        return "free"
    return "done" if found + len(MARKER) == len(text) + len(piece) else "banned"


def test_rows_agree_with_a_search_of_the_text(small, session):
    pick = random.Random(5)
    pieces = [MARKER[:k] for k in range(1, len(MARKER))] + [b"<", b"a", b" file", b"<<", b">"]
    for _ in range(120):
        text = b"".join(pick.choice(pieces) for _ in range(pick.randint(0, 4)))
        tokens = [next(t for t, p in enumerate(small.token_bytes) if p == bytes([b])) for b in text]
        if MARKER in text:
            continue
        probe = session.clone()
        probe.accept(tokens)
        allowed = small.allowed(probe)
        for token, piece in enumerate(small.token_bytes):
            if token == IM_END:
                partial = any(text.endswith(MARKER[:k]) for k in range(1, len(MARKER)))
                assert (token in allowed) == (not partial)
            elif token != EOS:
                assert (token in allowed) == (expected(text, piece) != "banned")
        assert EOS in allowed and probe.may_stop and not probe.must_stop
        assert not probe.in_grammar and probe.forced(9) == [] and probe.closing(9) == []
        if not probe.needs_mask():
            assert allowed == set(range(small.size))


def test_a_straddling_token_is_banned_only_inside_the_match():
    pieces = [b"<t", b">", b"> ", b"x>", b">>", b"x", b"<t><", b"END"]
    vocab = Vocab(pieces, frozenset({7}), frozenset({7}), len(pieces))
    marker = Marker("<t>", vocab)
    assert [marker.step(0, t) for t in range(7)] == [2, 0, 0, 0, 0, 0, Marker.BANNED]
    assert [marker.step(2, t) for t in range(7)] == [
        2,
        Marker.DONE,
        Marker.BANNED,
        0,
        Marker.BANNED,
        0,
        Marker.BANNED,
    ]
    assert marker.open == [False, False, False]


def test_self_overlapping_markers_follow_the_text():
    pieces = [b"a", b"b", b"aab", b"END"]
    vocab = Vocab(pieces, frozenset({3}), frozenset({3}), 4)
    marker = Marker("aaab", vocab)
    state, text = 0, b""
    for token in (0, 0, 0, 0, 0, 1):
        state, text = marker.step(state, token), text + pieces[token]
    assert text.endswith(b"aaab") and state == Marker.DONE
    assert marker.step(1, 2) == Marker.DONE
    assert marker.step(2, 2) == Marker.DONE


def test_a_draft_across_the_trigger_is_constrained_after_it(small, session, factories):
    draft = small.encode('a file <tool_call>[{"name": "note", "arguments": {"text": "x"}}]')
    rows = small.rows(len(draft) + 1)
    assert session.masks(draft, rows) == len(draft)
    walker = session.clone()
    for k, token in enumerate(draft):
        assert bits(rows[k]) == small.allowed(walker)
        walker.accept([token])
    assert bits(rows[len(draft)]) == small.allowed(walker)
    assert walker.in_grammar and not session.in_grammar
    start = small.encode("a file <tool_call>")
    free = small.encode("a file <tool_call>free text")
    assert free[: len(start)] == start
    assert session.masks(free, small.rows(len(free) + 1)) == len(start)


def test_rollback_crosses_the_trigger_both_ways(small, session):
    path = small.encode('file <tool_call>[{"name": "note", "arguments": {')
    session.accept(path)
    for count in range(1, len(path) + 1):
        probe = session.clone()
        probe.rollback(count)
        fresh_rows = small.allowed(probe)
        probe.accept(path[len(path) - count :])
        assert small.allowed(probe) == small.allowed(session)
        assert probe.in_grammar
        probe.rollback(count)
        assert small.allowed(probe) == fresh_rows


def test_the_text_ends_after_the_closing_marker(small, session):
    session.accept(small.encode('<tool_call>[{"name": "note", "arguments": {}}]</tool_call>'))
    assert session.must_stop and small.allowed(session) == {EOS}
    with pytest.raises(ConstraintViolated):
        session.accept(small.encode(" "))


def test_eos_and_straddling_tokens_raise(small, session):
    with pytest.raises(ConstraintViolated):
        session.accept([EOS])
    session.accept(small.encode("<tool_call"))
    with pytest.raises(ConstraintViolated):
        session.accept([IM_END])


def test_json_or_calls_from_the_first_token(small, factories):
    from agentspec.toolcall.choice import Answer

    answer = Answer({"type": "object", "properties": {"ok": {"type": "boolean"}}}, "r", "p")
    spec = tools_spec(TOOL, calls="may", answer=answer)
    compiled = factories().compile(spec)
    for text in ('{"ok": true}', '<tool_call>[{"name": "note", "arguments": {}}]</tool_call>'):
        session = compiled.session()
        assert session.in_grammar and session.needs_mask()
        session.accept(small.encode(text))
        assert session.must_stop
    assert small.encode("hello")[0] not in small.allowed(compiled.session())


@pytest.mark.parametrize(("most", "more_legal"), [(1, False), (2, True)])
def test_the_number_of_calls_is_bounded(small, factories, most, more_legal):
    session = factories(canonical=False).compile(tools_spec(TOOL, max_calls=most)).session()
    call = '{"name": "note", "arguments": {}}'
    for byte in f"<tool_call>[{call}".encode():
        session.accept([small.token_bytes.index(bytes([byte]))])
    assert session.allows(small.token_bytes.index(b",")) == more_legal
    assert session.allows(small.token_bytes.index(b"]"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_grammar_takes_exactly_the_samples_that_say_so(small, factories, sample):
    """``in_grammar``: what the engine itself could have written, text first or not."""
    expected = json.loads(sample.with_suffix(".json").read_text(encoding="utf-8"))
    names = {call["name"] for call in expected["calls"]} | {"f"}
    spec = tools_spec({name: {"type": "object"} for name in sorted(names)}, calls="may")
    session = factories(canonical=False).compile(spec).session()
    accepted = True
    for byte in sample.read_bytes():
        token = small.token_bytes.index(bytes([byte]))
        accepted = session.allows(token)
        if not accepted:
            break
        session.accept([token])
    whole = accepted and session.may_stop
    assert whole == (expected["in_grammar"] or sample.stem == "bad_torn_marker")
