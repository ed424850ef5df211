"""Gumbel noise against SplitMix64 in Python integers, and against its distribution."""

from __future__ import annotations

import math

import pytest
import torch
from agentspec_kernels.gumbel import gumbel, gumbel_argmax, token_hash
from agentspec_kernels.gumbel.reference import exact_log, key
from hypothesis import given
from hypothesis import strategies as st

MASK = (1 << 64) - 1
PINNED_HASH = [8163751063597049310, 17397668896632915156, 11641495067283555062]
PINNED_NOISE = ["0x1.a27dac67335c6p-3", "0x1.6b3e88d8919fbp+1", "0x1.8d3c4f1b04f9ap-1"]


class SplitMix64:
    """The generator as its paper gives it: a state that grows by a constant, and a mixer."""

    def __init__(self, state: int):
        self.state = state & MASK

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def test_the_generator_here_gives_the_published_outputs() -> None:
    """Rosetta Code, "Pseudo-random numbers/Splitmix64": the first outputs of seed 1234567."""
    stream = SplitMix64(1234567)
    assert [stream.next() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(), st.integers(0, 1 << 40))
def test_hash_is_splitmix64_started_at_the_key(seed: int, position: int) -> None:
    stream = SplitMix64(key(seed, position))
    assert [h & MASK for h in token_hash(seed, position, 5).tolist()] == [
        stream.next() for _ in range(5)
    ]


def test_bits_are_pinned() -> None:
    """A change of these bits changes every seeded answer that anybody has recorded."""
    assert [h & MASK for h in token_hash(42, 7, 3).tolist()] == PINNED_HASH
    assert [x.hex() for x in gumbel(42, 7, 3, dtype=torch.float64).tolist()] == PINNED_NOISE


@given(st.integers(), st.integers(0, 10000), st.integers(1, 40))
def test_noise_of_a_token_depends_on_seed_position_and_token_alone(
    seed: int, position: int, vocab: int
) -> None:
    assert torch.equal(gumbel(seed, position, vocab), gumbel(seed, position, 64)[:vocab])
    assert not torch.equal(gumbel(seed, position, 8), gumbel(seed + 1, position, 8))
    assert not torch.equal(gumbel(seed, position, 8), gumbel(seed, position + 1, 8))


def test_noise_is_minus_log_minus_log_of_the_hash() -> None:
    hashes = [h & MASK for h in token_hash(5, 6, 2000).tolist()]
    truth = [-math.log(-math.log(((h >> 12) + 0.5) / (1 << 52))) for h in hashes]
    found = gumbel(5, 6, 2000, dtype=torch.float64)
    expected = torch.tensor(truth, dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_exact_log_over_its_whole_range() -> None:
    x = [2.0**-53, 1 - 2.0**-53, 0.5, math.sqrt(0.5), 1.0, 1 + 2.0**-52, 36.7, 1e-300, 1e300]
    truth = torch.tensor([math.log(v) for v in x], dtype=torch.float64)
    found = exact_log(torch.tensor(x, dtype=torch.float64))
    torch.testing.assert_close(found, truth, rtol=4e-16, atol=0)


def test_float32_is_the_rounded_float64() -> None:
    assert torch.equal(gumbel(1, 2, 999), gumbel(1, 2, 999, dtype=torch.float64).float())


def test_distribution_is_standard_gumbel() -> None:
    """Kolmogorov-Smirnov over positions and tokens; 1.95 / sqrt(n) is the 0.1 % point."""
    draws = torch.cat([gumbel(11, position, 1000, dtype=torch.float64) for position in range(40)])
    ordered = draws.sort().values
    cdf = torch.exp(-torch.exp(-ordered))
    n = len(ordered)
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    distance = torch.maximum((steps - cdf).abs(), (steps - 1 / n - cdf).abs()).max()
    assert distance < 1.95 / math.sqrt(n)


def test_argmax_of_logits_plus_noise_samples_softmax() -> None:
    """Chi-square over 4 tokens with 3 degrees of freedom; 16.27 is the 0.1 % point."""
    probs = torch.tensor([0.5, 0.25, 0.2, 0.05], dtype=torch.float64)
    n = 4000
    picks = [int((probs.log() + gumbel(3, t, 4, dtype=torch.float64)).argmax()) for t in range(n)]
    chi = sum((picks.count(i) - n * p) ** 2 / (n * p) for i, p in enumerate(probs.tolist()))
    assert chi < 16.27


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_bits() -> None:
    for dtype in (torch.float32, torch.float64):
        there = gumbel(9, 9, 100_000, device="cuda", dtype=dtype)
        assert torch.equal(there.cpu(), gumbel(9, 9, 100_000, dtype=dtype))


def by_definition(probs: torch.Tensor, seed: int, position: int) -> int:
    noise = gumbel(seed, position, probs.numel(), dtype=torch.float64)
    return int((probs.double().log() + noise).argmax())


@given(
    st.integers(0, 1 << 40),
    st.lists(st.sampled_from([0.0, 1e-30, 1e-7, 1e-3, 0.25, 0.25000003, 1.0]), min_size=1),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_argmax_is_that_of_the_definition(seed, weights, dtype) -> None:
    probs = torch.tensor([*weights, 1e-3], dtype=dtype)
    before = probs.clone()
    assert gumbel_argmax(probs, seed, 3) == by_definition(probs, seed, 3)
    assert torch.equal(probs, before)


@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
def test_the_argmax_over_a_whole_vocabulary(spread) -> None:
    generator = torch.Generator().manual_seed(1)
    for position in range(30):
        probs = (torch.randn(5000, generator=generator) * spread).softmax(0)
        probs[position::7] = 0
        assert gumbel_argmax(probs, 9, position) == by_definition(probs, 9, position)


def test_where_two_tokens_are_too_close_the_exact_noise_decides() -> None:
    """Weights made so that two tokens' scores differ by less than the margin, either way."""
    noise = gumbel(4, 4, 2, dtype=torch.float64)
    for shift in (-1e-9, 1e-9):
        probs = torch.tensor([1.0, 0.0], dtype=torch.float64)
        probs[1] = torch.exp(noise[0] - noise[1] + shift)
        assert gumbel_argmax(probs, 4, 4) == by_definition(probs, 4, 4) == int(shift > 0)
