"""The grammar filter: forced spans in, illegal drafts out, the constraint where it was."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.draft.base import EMPTY, FORCED, Proposal
from agentspec.engine.draft.forced import constrain_draft
from tests.engine.draft.toyworld import Grammar, World, numbers

VOCAB = 4


def _view(grammar: Grammar | None):
    return World(vocab=VOCAB, grammar=grammar).view()


def _draft(*tokens: int, dense: bool = False) -> Proposal:
    probs = torch.eye(VOCAB)[list(tokens)] if dense else None
    confidence = tuple(0.9 - 0.1 * k for k in range(len(tokens)))
    return Proposal(tokens, ("x",) * len(tokens), confidence, probs)


def _any(*tokens: int):
    return lambda prefix: frozenset(tokens)


def test_without_a_constraint_it_only_cuts():
    proposal = _draft(3, 2, 1)
    assert constrain_draft(_view(None), proposal, 5) is proposal
    assert constrain_draft(_view(None), proposal, 2) == proposal.cut(2)
    assert constrain_draft(_view(None), proposal, 0) == EMPTY


def test_one_hot_ends_before_the_first_illegal_token():
    view = _view(Grammar(_any(0, 1)))
    assert constrain_draft(view, _draft(0, 1, 2, 0), 9).tokens == (0, 1)
    assert constrain_draft(view, _draft(3, 0), 9) == EMPTY


def test_the_first_illegal_token_of_a_dense_draft_becomes_its_tail():
    view = _view(Grammar(_any(0, 1)))
    proposal = _draft(0, 1, 2, 0, dense=True)
    got = constrain_draft(view, proposal, 9)
    assert got.tokens == (0, 1)
    assert got.confidence == proposal.confidence[:2]
    assert torch.equal(got.draft_probs, proposal.draft_probs[:2])
    assert got.tail is not None and got.tail[0] == 2
    assert torch.equal(got.tail[1], proposal.draft_probs[2])


def test_spans_are_inserted_and_their_spelling_is_consumed():
    grammar = Grammar(_any(0, 1), {(): (2, 3), (2, 3, 0): (1, 3)})
    got = constrain_draft(_view(grammar), _draft(2, 3, 0, 1, 3, 1), 9)
    assert got.tokens == (2, 3, 0, 1, 3, 1)
    assert got.sources == (FORCED, FORCED, "x", FORCED, FORCED, "x")
    confidence = (1.0, 1.0, 0.9 - 0.1 * 2, 1.0, 1.0, 0.9 - 0.1 * 5)
    assert got.confidence == confidence


def test_a_draft_that_says_something_else_loses_its_rest():
    grammar = Grammar(_any(0, 1), {(0,): (2, 3)})
    got = constrain_draft(_view(grammar), _draft(0, 2, 1, 0), 9)
    assert got.tokens == (0, 2, 3)
    assert got.sources == ("x", FORCED, FORCED)


def test_a_draft_that_ends_inside_a_span_is_completed():
    grammar = Grammar(_any(0, 1), {(0,): (2, 3)})
    assert constrain_draft(_view(grammar), _draft(0, 2), 9).tokens == (0, 2, 3)
    assert constrain_draft(_view(grammar), _draft(0), 9).tokens == (0, 2, 3)


def test_forced_tokens_stand_where_nothing_was_drafted():
    grammar = Grammar(_any(0, 1), {(): (2, 3)})
    assert constrain_draft(_view(grammar), EMPTY, 9).tokens == (2, 3)
    assert constrain_draft(_view(grammar), EMPTY, 1).tokens == (2,)


def test_dense_rows_follow_their_tokens():
    grammar = Grammar(_any(0, 1), {(0,): (2, 3)})
    proposal = _draft(0, 2, 3, 1, dense=True)
    got = constrain_draft(_view(grammar), proposal, 9)
    assert got.tokens == (0, 2, 3, 1)
    assert torch.equal(got.draft_probs[0], proposal.draft_probs[0])
    assert torch.equal(got.draft_probs[3], proposal.draft_probs[3])
    assert float(got.draft_probs[1:3].sum()) == 0.0, "a forced token is not drawn"


def test_nothing_follows_the_end_of_text():
    view = _view(Grammar(_any(0, 1, 3)))
    got = constrain_draft(view, _draft(0, 3, 1), 9, stop_ids={3})
    assert got.tokens == (0, 3)
    assert constrain_draft(_view(None), _draft(0, 3, 1), 9, stop_ids={3}).tokens == (0, 3)


def _random_grammar(seed: int) -> Grammar:
    def legal(prefix):
        draws = numbers(VOCAB, seed, prefix)
        return frozenset(t for t in range(VOCAB) if draws[t] < 0.7) | {seed % VOCAB}

    spans = {(seed % 3,): (3, 1), (1, 2): (0,), (seed % 2, 3, 1): (2, 2, 2)}
    return Grammar(legal, spans)


@given(
    st.integers(0, 40),
    st.lists(st.integers(0, VOCAB - 1), max_size=6),
    st.integers(0, 8),
    st.booleans(),
)
def test_what_is_proposed_could_have_been_generated(seed, tokens, limit, dense):
    grammar = _random_grammar(seed)
    view = _view(grammar)
    proposal = _draft(*tokens, dense=dense)
    got = constrain_draft(view, proposal, limit)

    assert view.constraint.prefix == () and len(got) <= limit
    prefix: tuple[int, ...] = ()
    for k, (token, source) in enumerate(zip(got.tokens, got.sources, strict=True)):
        forced = grammar.forced(prefix)
        assert (source == FORCED) == bool(forced)
        if forced:
            assert token == forced[0]
        elif token not in grammar.allowed(prefix):
            assert dense and k == len(got) - 1, "only a dense draft's last token may be illegal"
        prefix = (*prefix, token)
    drafted = [t for t, s in zip(got.tokens, got.sources, strict=True) if s != FORCED]
    assert len(drafted) <= len(tokens)
    assert constrain_draft(view, got, limit).tokens == got.tokens, "filtering twice adds nothing"
