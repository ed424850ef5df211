"""Queries change nothing, rollback is replay, clones are independent, forced is canonical."""

from __future__ import annotations

import random

import pytest

from .conftest import EOS, answer_spec, tools_spec
from .schemas import AGENT_TOOLS

SPECS = {
    "calls": tools_spec(
        {
            "read_file": AGENT_TOOLS["read_file"],
            "read": {"type": "object", "properties": {"kind": {"enum": ["alpha", "beta"]}}},
        }
    ),
    "auto": tools_spec({"read_file": AGENT_TOOLS["read_file"]}, calls="may"),
    "answer": answer_spec(AGENT_TOOLS["todo_write"]),
}
BACKENDS = ("llguidance", "outlines")


def walk(small, session, seed: int, steps: int) -> list[int]:
    """Accept up to ``steps`` random legal tokens; free text is led to the marker."""
    pick, path = random.Random(seed), []
    marker = small.encode("see <tool_call>")
    for _ in range(steps):
        if not session.in_grammar:
            token = marker[len(path)]
        else:
            allowed = sorted(small.allowed(session) - {EOS})
            if not allowed:
                break
            token = pick.choice(allowed)
        session.accept([token])
        path.append(token)
    return path


def snapshot(small, session) -> tuple:
    return (
        frozenset(small.allowed(session)),
        tuple(session.forced(99)),
        session.may_stop,
        session.must_stop,
        session.in_grammar,
        session.needs_mask(),
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SPECS)
def test_queries_leave_the_state(small, factories, backend, name):
    compiled = factories(backend=backend).compile(SPECS[name])
    for seed in range(4):
        session = compiled.session()
        path = walk(small, session, seed, 18 + seed)
        before = snapshot(small, session)
        rows = small.rows(9)
        draft = walk(small, session.clone(), seed + 9, 8)
        session.masks(draft, rows[: len(draft) + 1])
        for token in range(0, small.size, 7):
            session.allows(token)
        session.forced(3)
        session.closing(60)
        assert snapshot(small, session) == before
        fresh = compiled.session()
        fresh.accept(path)
        assert snapshot(small, fresh) == before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SPECS)
def test_rollback_is_replay(small, factories, backend, name):
    compiled = factories(backend=backend).compile(SPECS[name])
    for seed in range(4):
        session = compiled.session()
        path = walk(small, session, seed, 30)
        for share in (0.0, 0.05, 0.3, 0.5, 1.0):
            count = int(len(path) * share)
            session.rollback(count)
            path = path[: len(path) - count]
            fresh = compiled.session()
            fresh.accept(path)
            assert snapshot(small, session) == snapshot(small, fresh)
            path += walk(small, session, seed + 50, 4) if session.in_grammar else []


def test_rollback_over_the_end_of_the_text(small, factories):
    session = factories().compile(SPECS["answer"]).session()
    closing = session.closing(80)
    assert closing
    session.accept(closing)
    assert session.must_stop
    session.rollback(1)
    assert not session.may_stop
    assert session.allows(closing[-1])
    session.accept(closing[-1:])
    assert session.must_stop and session.forced(5) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SPECS)
def test_clones_are_independent(small, factories, backend, name):
    session = factories(backend=backend).compile(SPECS[name]).session()
    walk(small, session, 3, 14)
    before = snapshot(small, session)
    twin = session.clone()
    assert snapshot(small, twin) == before
    walk(small, twin, 4, 12) if twin.in_grammar else twin.accept(small.encode("x"))
    assert snapshot(small, session) == before
    twin.rollback(5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_forced_spans_are_the_tokenizers_own_encoding(small, factories, backend):
    compiled = factories(backend=backend).compile(SPECS["calls"])
    text = (
        '<tool_call>[{"name": "read_file", "arguments": {"path": "a file", "limit": 20}}, '
        '{"name": "read", "arguments": {"kind": "beta"}}]</tool_call>'
    )
    ids, position, forced_tokens = small.encode(text), 0, 0
    session = compiled.session()
    while position < len(ids):
        forced = session.forced(99)
        assert forced == ids[position : position + len(forced)]
        assert session.forced(2) == forced[:2]
        step = forced or ids[position : position + 1]
        forced_tokens += len(forced)
        session.accept(step)
        position += len(step)
    assert session.must_stop
    assert forced_tokens > len(ids) // 3


def test_canonical_false_forces_nothing(small, factories):
    session = factories(canonical=False).compile(SPECS["calls"]).session()
    strict = factories().compile(SPECS["calls"]).session()
    start = small.encode('<tool_call>[{"')
    session.accept(start)
    strict.accept(start)
    assert session.forced(10) == [] and strict.forced(10)
    assert len(small.allowed(session)) > len(small.allowed(strict)) == 1
