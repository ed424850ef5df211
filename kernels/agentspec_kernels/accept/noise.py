"""Gumbel noise inside a kernel: the bits of ``gumbel/reference.py``, operation by operation.

Legend: B tokens of a block. Kernels that use it are compiled without fusing products and sums.
"""

# What is declared constexpr takes plain numbers, and a static range is unrolled by the compiler.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl

GOLDEN: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15 - (1 << 64))
MIX1: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9 - (1 << 64))
MIX2: tl.constexpr = tl.constexpr(0x94D049BB133111EB - (1 << 64))
SQRT_HALF: tl.constexpr = tl.constexpr(0.7071067811865476)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def _mixed(x, BITS: tl.constexpr):
    """x ^ (x >> BITS), the shift without sign: [B] int64."""
    return x ^ ((x >> BITS) & ((1 << (64 - BITS)) - 1))


@triton.jit
def _log(x):
    """Natural logarithm of positive normal float64 [B]."""
    bits = x.to(tl.int64, bitcast=True)
    exponent = ((bits >> 52) & 0x7FF) - 1022
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | (1022 << 52)).to(tl.float64, bitcast=True)
    small = mantissa < SQRT_HALF
    mantissa = tl.where(small, mantissa * 2, mantissa)
    exponent = exponent - small.to(tl.int64)
    z = (mantissa - 1) / (mantissa + 1)
    square = z * z
    series = tl.zeros_like(z) + 1.0 / 21
    for k in tl.static_range(9, -1, -1):
        series = series * square + 1.0 / (2 * k + 1)
    return series * z * 2 + exponent.to(tl.float64) * LN2


@triton.jit
def gumbel(key, token):
    """Noise of tokens [B] int under a stream that starts at ``key`` int64: [B] float64."""
    x = (token.to(tl.int64) + 1) * GOLDEN + key
    x = _mixed(x, 30) * MIX1
    x = _mixed(x, 27) * MIX2
    x = _mixed(x, 31)
    uniform = (((x >> 12) & ((1 << 52) - 1)).to(tl.float64) + 0.5) * 2.0**-52
    return -_log(-_log(uniform))
