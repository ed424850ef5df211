"""From logits to probabilities, against the definitions written out in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from agentspec_kernels.gumbel import gumbel
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.sampling import (
    Entropy,
    History,
    NoTokenAllowed,
    Purpose,
    SamplingParams,
    best_token,
    inverse_cdf,
    target_probs,
    unpack_mask,
)

SCORES = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.5, 2.0, 4.0]), min_size=1, max_size=7)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.integers(0, 8),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.6]),
)


def _ranked(probs: list[float]) -> list[int]:
    """Tokens from the most probable down; ties by the smaller id."""
    return sorted(range(len(probs)), key=lambda token: (-probs[token], token))


def _keep(probs: list[float], kept: set[int]) -> list[float]:
    total = math.fsum(p for token, p in enumerate(probs) if token in kept)
    return [p / total if token in kept else 0.0 for token, p in enumerate(probs)]


def _reference(scores: list[float], params: SamplingParams, allowed: set[int]) -> list[float]:
    best = min(allowed, key=lambda token: (-scores[token], token))
    if params.temperature == 0.0:
        return [float(token == best) for token in range(len(scores))]
    weights = [math.exp((s - scores[best]) / params.temperature) for s in scores]
    probs = _keep(weights, allowed)
    if params.top_k:
        probs = _keep(probs, set(_ranked(probs)[: params.top_k]))
    if params.top_p < 1.0:
        kept: set[int] = set()
        mass = 0.0
        for token in _ranked(probs):
            if kept and mass >= params.top_p - 1e-12:
                break
            kept.add(token)
            mass += probs[token]
        probs = _keep(probs, kept)
    if params.min_p > 0.0:
        probs = _keep(probs, {t for t, p in enumerate(probs) if p >= params.min_p * max(probs)})
    return probs


@given(SCORES, PARAMS, st.data())
def test_target_probs(scores, params, data):
    some = st.sets(st.integers(0, len(scores) - 1), min_size=1)
    allowed = data.draw(st.none() | some)
    mask = None
    if allowed is not None:
        mask = torch.tensor([token in allowed for token in range(len(scores))])
    expected = _reference(scores, params, allowed or set(range(len(scores))))
    for dtype, error in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        row = torch.tensor(scores, dtype=dtype)
        before = row.clone()
        got = target_probs(row, params, mask)
        assert got.dtype == dtype and torch.equal(row, before)
        assert got.tolist() == pytest.approx(expected, abs=error)


def test_truncation_over_a_large_vocabulary():
    """Where the nucleus holds more tokens than are looked at first."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3000, generator=generator, dtype=torch.float64)
    for params in (
        SamplingParams(top_p=0.95),
        SamplingParams(top_p=0.3, temperature=0.2),
        SamplingParams(top_k=700, top_p=0.9),
        SamplingParams(min_p=0.05),
    ):
        expected = _reference(scores.tolist(), params, set(range(3000)))
        assert target_probs(scores, params).tolist() == pytest.approx(expected, abs=1e-12)


def test_ties_fall_to_the_smaller_id():
    scores = torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    for kept, tokens in ((1, [1]), (2, [1, 4]), (3, [0, 1, 4]), (4, [0, 1, 2, 4])):
        probs = target_probs(scores, SamplingParams(top_k=kept))
        assert probs.nonzero().flatten().tolist() == tokens
    probs = target_probs(torch.zeros(10), SamplingParams(top_p=0.35))
    assert probs.nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert best_token(scores) == 1


@pytest.mark.parametrize("temperature", [1e-45, 1e-6, 1e6])
def test_extreme_temperatures_stay_finite(temperature: float):
    probs = target_probs(torch.tensor([1.0, 90.0, -90.0]), SamplingParams(temperature=temperature))
    assert float(probs.sum()) == pytest.approx(1.0)
    assert int(probs.argmax()) == 1


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.0)])
def test_a_row_without_a_token_is_an_error(params: SamplingParams):
    row = torch.zeros(3)
    with pytest.raises(NoTokenAllowed):
        target_probs(row, params, torch.zeros(3, dtype=torch.bool))
    for bad in (math.nan, math.inf):
        with pytest.raises(NoTokenAllowed):
            target_probs(torch.tensor([0.0, bad, 0.0]), params)
    with pytest.raises(NoTokenAllowed):
        best_token(torch.full((3,), -math.inf))


@given(st.lists(st.booleans(), min_size=1, max_size=100))
def test_mask_words(bits):
    words = [0] * ((len(bits) + 31) // 32)
    for token, bit in enumerate(bits):
        words[token // 32] |= bit << (token % 32)
    signed = [word - (1 << 32) if word >> 31 else word for word in words]
    got = unpack_mask(torch.tensor(signed, dtype=torch.int32), len(bits))
    assert got.tolist() == bits


PENALTIES = st.builds(
    SamplingParams,
    presence_penalty=st.sampled_from([0.0, 0.6, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.4, -0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.5, 0.8]),
    logit_bias=st.dictionaries(st.integers(0, 4), st.floats(-5, 5), max_size=3),
)


@given(PENALTIES, st.lists(st.integers(0, 4), max_size=6), st.lists(st.integers(0, 4), max_size=6))
def test_penalties(params, prompt, output):
    """By the formulas; the same whether tokens were there from the start or came one by one."""
    row = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0], dtype=torch.float64)
    expected = []
    for token, score in enumerate(row.tolist()):
        score += params.logit_bias.get(token, 0.0)
        if token in prompt or token in output:
            ratio = params.repetition_penalty
            score = score / ratio if score > 0 else score * ratio
        score -= params.frequency_penalty * output.count(token)
        score -= params.presence_penalty * (token in output)
        expected.append(score)
    whole = History(params, prompt + output, len(prompt), 5)
    grown = History(params, prompt, len(prompt), 5)
    for token in output:
        grown.push(token)
    assert whole.adjust(row).tolist() == pytest.approx(expected, abs=1e-12)
    assert torch.equal(grown.adjust(row), whole.adjust(row))
    assert row.tolist() == [-2.0, -0.5, 0.0, 1.0, 3.0]


def test_each_token_owns_an_interval_as_long_as_its_probability():
    probs = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    edges = {0.0: 1, 0.2499: 1, 0.25: 3, 0.7499: 3, 0.75: 4, 1.0 - 2.0**-53: 4}
    assert {u: inverse_cdf(probs, u) for u in edges} == edges


def test_the_last_number_below_one_still_falls_on_a_token():
    """Probabilities whose sum is a little off 1, after rounding."""
    for scale in (1.0, 0.9999999, 1.0000001):
        probs = torch.full((1000,), scale / 1000)
        probs[-1] = 0.0
        assert inverse_cdf(probs, 1.0 - 2.0**-53) == 998


def test_coins_at_the_edges():
    entropies = [Entropy(key, False) for key in range(200)]
    assert all(entropy.coin(3, 1.0) for entropy in entropies)
    assert not any(entropy.coin(3, 0.0) for entropy in entropies)


@pytest.mark.parametrize("purpose", Purpose)
def test_uniform_numbers_are_uniform(purpose: Purpose):
    """Chi-square over 20 cells, for neighbouring positions of one key and keys at one position."""
    count, cells = 4000, 20
    by_position = [Entropy(1, False).uniform(i, purpose) for i in range(count)]
    by_key = [Entropy(i, False).uniform(1, purpose) for i in range(count)]
    for draws in (by_position, by_key):
        seen = [0] * cells
        for u in draws:
            assert 0.0 <= u < 1.0
            seen[int(u * cells)] += 1
        expected = count / cells
        statistic = sum((n - expected) ** 2 / expected for n in seen)
        assert statistic < 43.8, "beyond the 0.1 % point of chi-square with 19 degrees"


def test_purposes_are_independent():
    entropy, count = Entropy(9, False), 4000
    draws = {p: [entropy.uniform(i, p) - 0.5 for i in range(count)] for p in Purpose}
    for a in Purpose:
        for b in Purpose:
            if a < b:
                product = sum(x * y for x, y in zip(draws[a], draws[b], strict=True)) / count
                assert abs(product) < 4 / 12 / count**0.5


def test_randomness_has_no_state():
    entropy = Entropy(5, False)
    later = entropy.uniform(7, Purpose.SAMPLE)
    entropy.uniform(3, Purpose.ACCEPT)
    assert entropy.uniform(7, Purpose.SAMPLE) == later


def test_seeded_choices_follow_the_probabilities():
    probs, count = torch.tensor([0.5, 0.3, 0.0, 0.2]), 2000
    entropy, seen = Entropy.of(11), [0, 0, 0, 0]
    for position in range(count):
        seen[entropy.choose(position, probs)] += 1
    for token, p in enumerate(probs.tolist()):
        assert abs(seen[token] - count * p) <= 4 * (count * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("vocab", [1, 3, 1000])
def test_the_chosen_token_is_the_argmax_of_the_noise(vocab: int):
    """Ties within rounding included: equal probabilities, and some that differ in the last bit."""
    generator = torch.Generator().manual_seed(0)
    for position in range(40):
        probs = torch.softmax(torch.randn(vocab, generator=generator, dtype=torch.float64), 0)
        probs[1 : vocab // 2 + 1] = 0.0
        noise = gumbel(13, position, vocab, dtype=torch.float64)
        expected = int((probs.log() + noise).argmax())
        assert Entropy.of(13).choose(position, probs) == expected
        # Noise taken back: all scores are equal up to rounding, and the exact sum decides.
        level = torch.exp(-noise - 10.0)
        expected = int((level.log() + noise).argmax())
        assert Entropy.of(13).choose(position, level) == expected
