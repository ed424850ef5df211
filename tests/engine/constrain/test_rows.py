"""Mask rows against a truth by brute force: the finite language written out, or single bytes."""

from __future__ import annotations

import random

import pytest

from agentspec.engine.constrain import ConstraintViolated

from .conftest import EOS, IM_END, answer_spec, bits, tools_spec

FINITE = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["celsius", "kelvin"]},
        "exact": {"type": "boolean"},
        "tag": {"const": "<tag>"},
    },
    "required": ["unit"],
    "additionalProperties": False,
}
TEXTS = [
    "{" + ", ".join(parts) + "}"
    for unit in ("celsius", "kelvin")
    for exact in ("", '"exact": true', '"exact": false')
    for tag in ("", '"tag": "<tag>"')
    for parts in [[part for part in (f'"unit": "{unit}"', exact, tag) if part]]
]
BACKENDS = ("llguidance", "outlines")


def legal_by_listing(small, prefix: bytes, texts: list[str]) -> set[int]:
    """Tokens after which some listed text is still possible; EOS where one is complete."""
    rests = [t.encode()[len(prefix) :] for t in texts if t.encode().startswith(prefix)]
    tokens = {
        token
        for token, piece in enumerate(small.token_bytes)
        if token not in (EOS, IM_END) and any(rest.startswith(piece) for rest in rests)
    }
    return tokens | ({EOS} if b"" in rests else set())


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_equal_the_listed_language_on_every_path(small, factories, backend):
    compiled = factories(backend=backend, canonical=False).compile(answer_spec(FINITE))
    pick = random.Random(1)
    for text in TEXTS:
        session, prefix = compiled.session(), b""
        while not session.must_stop:
            truth = legal_by_listing(small, prefix, TEXTS)
            assert small.allowed(session) == truth
            assert all(session.allows(token) == (token in truth) for token in range(small.size))
            towards = [
                token
                for token in truth - {EOS}
                if text.encode().startswith(prefix + small.token_bytes[token])
            ]
            token = pick.choice(sorted(towards))
            session.accept([token])
            prefix += small.token_bytes[token]
        assert prefix.decode() == text
        assert small.allowed(session) == {EOS}


@pytest.mark.parametrize("backend", BACKENDS)
def test_canonical_rows_are_the_forced_token_or_the_listed_language(small, factories, backend):
    compiled = factories(backend=backend).compile(answer_spec(FINITE))
    for text in TEXTS:
        session, done = compiled.session(), []
        for token in small.encode(text):
            forced, allowed = session.forced(50), small.allowed(session)
            if forced:
                assert allowed == {forced[0]} == {token}
            else:
                assert allowed == legal_by_listing(small, small.decode(done), TEXTS)
            assert {t for t in range(small.size) if session.allows(t)} == allowed
            session.accept([token])
            done.append(token)
        assert session.must_stop


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("canonical", [True, False])
def test_draft_rows_are_the_rows_after_each_prefix(small, factories, backend, canonical):
    compiled = factories(backend=backend, canonical=canonical).compile(answer_spec(FINITE))
    for draft in (small.encode(TEXTS[0]), small.encode(TEXTS[5] + "x"), [IM_END], [EOS]):
        session, rows = compiled.session(), small.rows(len(draft) + 1)
        legal = session.masks(draft, rows)
        walker = compiled.session()
        for k in range(legal + 1):
            assert bits(rows[k]) == small.allowed(walker)
            if k < legal:
                walker.accept([draft[k]])
        if legal < len(draft):
            assert not walker.allows(draft[legal])


def test_a_drafted_eos_is_no_part_of_the_legal_prefix(small, factories):
    session = factories().compile(answer_spec(FINITE)).session()
    draft = [*small.encode(TEXTS[0]), EOS]
    rows = small.rows(len(draft) + 1)
    assert session.masks(draft, rows) == len(draft) - 1
    assert bits(rows[len(draft) - 1]) == {EOS}


@pytest.mark.parametrize("backend", BACKENDS)
def test_open_language_rows_follow_the_bytes(small, factories, backend):
    """Unbounded schemas: a token is legal iff its single bytes are, one after another."""
    spec = tools_spec({"note": {"type": "object", "properties": {"text": {"type": "string"}}}})
    compiled = factories(backend=backend, canonical=False).compile(spec)
    one_byte = {piece[0]: t for t, piece in enumerate(small.token_bytes) if len(piece) == 1}
    session = compiled.session()
    walk = small.encode('<tool_call>[{"name": "note", "arguments": {"text": "a file <t\\n é"}}')
    for token in walk:
        allowed = small.allowed(session)
        for candidate, piece in enumerate(small.token_bytes):
            if candidate in (EOS, IM_END):
                continue
            probe, legal = session.clone(), True
            for byte in piece:
                legal = legal and probe.allows(one_byte[byte])
                if not legal:
                    break
                probe.accept([one_byte[byte]])
            assert legal == (candidate in allowed)
        session.accept([token])


@pytest.mark.parametrize("backend", BACKENDS)
def test_illegal_special_and_eos_tokens_raise_and_leave_the_state(small, factories, backend):
    session = factories(backend=backend, canonical=False).compile(answer_spec(FINITE)).session()
    session.accept(small.encode('{"unit": "'))
    before = small.allowed(session)
    for token in (EOS, IM_END, small.encode("}")[0]):
        with pytest.raises(ConstraintViolated):
            session.accept([token])
        assert small.allowed(session) == before
    session.accept(small.encode("kelvin"))
    assert not session.may_stop
