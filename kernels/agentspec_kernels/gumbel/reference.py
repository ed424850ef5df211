"""The definition of ``gumbel``. Legend: V vocabulary.

The noise of token v at position t under seed s depends on (s, t, v) and on nothing else: no
generator has a state, so no draft, schedule or preemption can move it. The hash is SplitMix64
(Steele, Lea and Flood, OOPSLA 2014, doi 10.1145/2714064.2660195): its v-th output, started at a key
made of s and t.

Same bits everywhere: the hash is integer arithmetic, and the logarithm below uses only operations
that IEEE 754 rounds correctly (+, -, *, /, in float64), one torch call each so that no compiler
fuses two of them; a device's own ``log`` may differ in the last bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB
_SQRT_HALF = math.sqrt(0.5)
_SERIES = tuple(1.0 / (2 * k + 1) for k in range(11))
"""log m = 2 (z + z^3/3 + z^5/5 + ...), z = (m - 1) / (m + 1); |z| < 0.172: error below 1e-17."""


def _signed(value: int) -> int:
    """The int64 with the bits of ``value`` modulo 2^64."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(value: int) -> int:
    """SplitMix64's output function on one unsigned 64-bit integer."""
    value = ((value ^ (value >> 30)) * _MIX1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX2) & _MASK
    return value ^ (value >> 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift of int64 [V] (torch's own keeps the sign)."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def key(seed: int, position: int) -> int:
    """The unsigned 64-bit start of the stream of one seed and position. Any integers."""
    return _mix((_mix((seed + _GOLDEN) & _MASK) + position * _GOLDEN) & _MASK)


def token_hash(seed: int, position: int, vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """64 hashed bits a token: [V] int64. Integer multiplication wraps modulo 2^64."""
    return _hash_of(key(seed, position), vocab, device)


def _hash_of(start: int, vocab: int, device: torch.device | str) -> Tensor:
    """``token_hash`` of a stream's start, any integer modulo 2^64."""
    x = torch.arange(1, vocab + 1, dtype=torch.int64, device=device)
    x.mul_(_signed(_GOLDEN)).add_(_signed(start))
    x.bitwise_xor_(_shift_right(x, 30)).mul_(_signed(_MIX1))
    x.bitwise_xor_(_shift_right(x, 27)).mul_(_signed(_MIX2))
    return x.bitwise_xor_(_shift_right(x, 31))


def exact_log(x: Tensor) -> Tensor:
    """Natural logarithm of positive normal float64 [V], the same bits on every device."""
    mantissa, exponent = torch.frexp(x)
    small = mantissa < _SQRT_HALF
    mantissa = torch.where(small, mantissa * 2, mantissa)
    exponent = (exponent - small.to(exponent.dtype)).to(torch.float64)
    z = (mantissa - 1).div_(mantissa + 1)
    square = z * z
    series = torch.full_like(z, _SERIES[-1])
    for coefficient in reversed(_SERIES[:-1]):
        series.mul_(square).add_(coefficient)
    return series.mul_(z).mul_(2).add_(exponent.mul_(math.log(2)))


def uniform(seed: int, position: int, vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """Uniform numbers: [V] float64. Each has 52 random bits and lies at the middle of its cell, so
    that it is neither 0 nor 1."""
    bits = _shift_right(token_hash(seed, position, vocab, device), 12)
    return bits.to(torch.float64).add_(0.5).mul_(2.0**-52)


def one_minus_uniform(
    seed: int, position: int, vocab: int, device: torch.device | str = "cpu"
) -> Tensor:
    """1 - ``uniform``, without rounding: [V] float64."""
    bits = _shift_right(token_hash(seed, position, vocab, device), 12)
    return bits.to(torch.float64).sub_(2.0**52 - 0.5).mul_(-(2.0**-52))


def gumbel(
    seed: int,
    position: int,
    vocab: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Independent standard Gumbel noise -log(-log(uniform)): [V] of ``dtype``, always finite."""
    return exact_log(exact_log(uniform(seed, position, vocab, device)).neg_()).neg_().to(dtype)


def from_key(start: int, vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """``gumbel`` of the seed and position whose ``key`` is ``start`` (modulo 2^64): [V] float64."""
    bits = _shift_right(_hash_of(start, vocab, device), 12)
    uniforms = bits.to(torch.float64).add_(0.5).mul_(2.0**-52)
    return exact_log(exact_log(uniforms).neg_()).neg_()
