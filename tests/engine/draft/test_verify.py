"""``verify`` at its edges: what it reads, what it leaves alone, and what floats can do to it."""

from __future__ import annotations

import pytest
import torch

from agentspec.engine.draft.base import EMPTY, FORCED, Proposal, Verdict
from agentspec.engine.sampling import Entropy, NoTokenAllowed, Purpose, SamplingParams
from agentspec.engine.verify import accept_probability, residual, verify
from tests.engine.draft.toyworld import Grammar, OneHot, World, decode

NONE = Entropy.of(None)


def _row(*best: int, vocab: int = 4) -> torch.Tensor:
    """[len(best), vocab] float32: rows whose argmax is given."""
    return torch.nn.functional.one_hot(torch.tensor(best), vocab).float() * 50.0


def _proposal(*tokens: int, source: str = "x") -> Proposal:
    return Proposal(tokens, (source,) * len(tokens), (0.5,) * len(tokens))


def _greedy(grammar: Grammar | None = None):
    return World(vocab=4, temperature=0.0, grammar=grammar).view()


def test_greedy_takes_the_matching_prefix_and_the_argmax_after_it():
    view = _greedy()
    logits = _row(3, 1, 2, 0)
    rows = [0, 1, 2, 3]
    assert verify(view, _proposal(3, 1, 2), logits, rows, NONE) == Verdict(3, 0)
    assert verify(view, _proposal(3, 2, 2), logits, rows, NONE) == Verdict(1, 1)
    assert verify(view, _proposal(0, 1, 2), logits, rows, NONE) == Verdict(0, 3)
    assert verify(view, EMPTY, logits, [2], NONE) == Verdict(0, 2)


def test_rows_may_lie_anywhere_in_the_logits():
    assert verify(_greedy(), _proposal(3, 1), _row(0, 2, 1, 3), [3, 2, 1], NONE) == Verdict(2, 2)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_after_a_rejection_are_not_read(temperature: float):
    view = World(vocab=4, temperature=temperature).view()
    logits = _row(3, 1, 2, 0)
    logits[1:] = torch.nan
    assert verify(view, _proposal(0, 1, 2), logits, [0, 1, 2, 3], NONE) == Verdict(0, 3)


def test_forced_tokens_are_taken_without_a_row():
    view = _greedy(Grammar(lambda prefix: frozenset({0, 1}), {(1,): (2, 3)}))
    proposal = Proposal((1, 2, 3, 0), ("x", FORCED, FORCED, "x"), (0.5, 1.0, 1.0, 0.5))
    assert verify(view, proposal, _row(1, 0, 1), [0, None, None, 1, 2], NONE) == Verdict(4, 1)


def test_a_span_cut_short_goes_on_with_its_own_token():
    """The row after the cut is not read: the target would have said something else."""
    view = _greedy(Grammar(lambda prefix: frozenset({0, 1}), {(1,): (2, 3)}))
    proposal = Proposal((1, 2), ("x", FORCED), (0.5, 1.0))
    assert verify(view, proposal, _row(1), [0, None, None], NONE) == Verdict(2, 3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_sampled_after_the_end_of_text(temperature: float):
    view = World(vocab=4, temperature=temperature).view()
    verdict = verify(view, _proposal(1, 3), _row(1, 3, 0), [0, 1, None], NONE, stop_ids={3})
    assert verdict == Verdict(2, 3)


def test_a_greedy_step_builds_a_mask_only_where_the_argmax_is_forbidden():
    view = _greedy(Grammar(lambda prefix: frozenset({0, 1})))
    proposal = _proposal(0, 1)
    assert verify(view, proposal, _row(0, 1, 1), [0, 1, 2], NONE) == Verdict(2, 1)
    assert view.constraint.masks_built == 0
    logits = _row(0, 2, 1)
    logits[1, 1] = 5.0
    assert verify(view, proposal, logits, [0, 1, 2], NONE) == Verdict(2, 1)
    assert view.constraint.masks_built == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_row_that_allows_nothing_is_an_error(temperature: float, seed: int | None):
    def legal(prefix):
        return frozenset() if prefix else frozenset({1})

    view = World(vocab=4, temperature=temperature, grammar=Grammar(legal)).view()
    with pytest.raises(NoTokenAllowed):
        verify(view, _proposal(1), _row(1, 2), [0, 1], Entropy.of(seed))
    assert view.constraint.prefix == ()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_an_error(temperature: float, bad: float):
    view = World(vocab=4, temperature=temperature).view()
    logits = torch.full((1, 4), bad)
    with pytest.raises(NoTokenAllowed):
        verify(view, EMPTY, logits, [0], NONE)


def test_the_inputs_are_left_as_they_were():
    grammar = Grammar(lambda prefix: frozenset({0, 1, 3}))
    view = World(vocab=4, grammar=grammar).view()
    view.sampling = SamplingParams(repetition_penalty=1.3, logit_bias={0: 1.0}, top_p=0.8)
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    probs = torch.full((2, 4), 0.25)
    proposal = Proposal((0, 1), ("x", "x"), (0.5, 0.5), probs.clone())
    tokens, before = list(view.tokens), logits.clone()
    for seed in range(20):
        verify(view, proposal, logits, [0, 1, 2], Entropy(seed, False))
    assert view.tokens == tokens and view.constraint.prefix == ()
    assert torch.equal(logits, before) and torch.equal(proposal.draft_probs, probs)


def test_acceptance_is_the_smaller_of_one_and_the_quotient():
    target = torch.tensor([0.5, 0.3, 0.2, 0.0])
    draft = torch.tensor([0.25, 0.6, 0.1, 0.05])
    expected = [1.0, 0.5, 1.0, 0.0]
    assert [accept_probability(target, draft, t) for t in range(4)] == pytest.approx(expected)
    assert [accept_probability(target, None, t) for t in range(4)] == pytest.approx(
        [0.5, 0.3, 0.2, 0.0]
    )


def test_a_draft_that_claims_to_draw_the_impossible():
    """An underflowed draft probability accepts what the target allows and nothing else."""
    target, draft = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    assert accept_probability(target, draft, 1) == 1.0
    assert accept_probability(target, draft, 2) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_residual_without_mass_falls_back_to_the_target(dtype: torch.dtype):
    target = torch.tensor([0.7, 0.3, 0.0], dtype=dtype)
    assert torch.equal(residual(target, target.clone(), 0), target)
    sure = torch.tensor([1.0, 0.0, 0.0], dtype=dtype)
    assert torch.equal(residual(sure, None, 0), sure)


def test_a_residual_never_holds_what_the_target_forbids():
    target = torch.tensor([0.6, 0.0, 0.4, 0.0])
    for draft in (None, torch.tensor([0.1, 0.5, 0.2, 0.2]), target):
        rest = residual(target, draft, 0)
        assert rest[1] == rest[3] == 0.0 and float(rest.sum()) == pytest.approx(1.0)


def test_a_draft_from_the_target_itself_is_always_accepted():
    """Rounding does not reject where the distributions are equal."""
    world = World(vocab=4)
    logits = world.logits((), (2,))
    proposal = Proposal((2,), ("x",), (0.5,), torch.softmax(logits[:1], dim=1))
    for key in range(50):
        entropy = Entropy(key, False)
        assert verify(world.view(), proposal, logits, [0, 1], entropy).accepted == 1


class Witness(Entropy):
    """Real randomness that notes what it is asked for."""

    __slots__ = ("asked",)

    def uniform(self, position: int, purpose: Purpose, attempt: int = 0) -> float:
        self.asked.append((position, purpose, attempt))
        return super().uniform(position, purpose, attempt)


def test_no_random_number_is_used_twice():
    """A coin of its own for each drafted token, and one choice for the token after them."""
    world = World(vocab=3)
    for key in range(20):
        entropy = Witness(key, False)
        object.__setattr__(entropy, "asked", [])
        decode(world, OneHot(3, length=3), entropy, 30)
        assert len(entropy.asked) > 30
        assert len(set(entropy.asked)) == len(entropy.asked)
        chosen = [position for position, purpose, _ in entropy.asked if purpose == Purpose.SAMPLE]
        assert chosen == sorted(chosen) and chosen[0] >= len(world.prompt)
