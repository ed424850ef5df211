"""rms_norm, rope, silu_mul, gelu_mul and linear against loops over plain Python floats."""

from __future__ import annotations

import math

import pytest
import torch
from agentspec_kernels.backend import UnknownBackend
from agentspec_kernels.gelu_mul import gelu_mul
from agentspec_kernels.linear import linear
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope, rope_table
from agentspec_kernels.silu_mul import silu_mul

BACKENDS = ("reference", "torch")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
DTYPES = tuple(TOLERANCE)


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def check(found: torch.Tensor, truth: list, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    expected = torch.tensor(truth, dtype=torch.float64)
    torch.testing.assert_close(
        found.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(backend: str, dtype: torch.dtype) -> None:
    x, weight = random(5, 7, dtype=dtype), random(7, dtype=dtype)
    truth = [
        [
            v / math.sqrt(sum(u * u for u in row) / 7 + 1e-3) * w
            for v, w in zip(row, weights, strict=True)
        ]
        for row in x.tolist()
        for weights in [weight.tolist()]
    ]
    check(rms_norm(x, weight, 1e-3, backend=backend), truth, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_mul(backend: str, dtype: torch.dtype) -> None:
    x = random(4, 10, dtype=dtype)
    truth = [
        [g / (1 + math.exp(-g)) * u for g, u in zip(r[:5], r[5:], strict=True)] for r in x.tolist()
    ]
    check(silu_mul(x, backend=backend), truth, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_mul(backend: str, dtype: torch.dtype) -> None:
    def gelu(x: float) -> float:
        return x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = random(4, 10, dtype=dtype)
    truth = [[gelu(g) * u for g, u in zip(r[:5], r[5:], strict=True)] for r in x.tolist()]
    check(gelu_mul(x, backend=backend), truth, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear(backend: str, dtype: torch.dtype) -> None:
    x, weight = random(3, 9, dtype=dtype), random(4, 9, dtype=dtype)
    truth = [
        [sum(a * b for a, b in zip(row, w, strict=True)) for w in weight.tolist()]
        for row in x.tolist()
    ]
    check(linear(x, weight, backend=backend), truth, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_turns_complex_numbers(backend: str, dtype: torch.dtype) -> None:
    positions, theta = [0, 1, 2, 977], 10000.0
    x = random(4, 2, 6, dtype=dtype)
    cos, sin = (table[positions] for table in rope_table(1000, 6, theta))
    truth = []
    for position, token in zip(positions, x.tolist(), strict=True):
        heads = []
        for head in token:
            turned = [
                complex(head[j], head[j + 3]) * complex(math.cos(a), math.sin(a))
                for j in range(3)
                for a in [position * theta ** (-2 * j / 6)]
            ]
            heads.append([z.real for z in turned] + [z.imag for z in turned])
        truth.append(heads)
    check(rope(x, cos, sin, backend=backend), truth, dtype)


def test_rope_scores_depend_on_distance_alone() -> None:
    query, key = random(1, 1, 8, dtype=torch.float64), random(1, 1, 9, dtype=torch.float64)[..., :8]
    cos, sin = rope_table(500, 8, 500.0)

    def score(at: int, to: int) -> float:
        q, k = rope(query, cos[[at]], sin[[at]]), rope(key, cos[[to]], sin[[to]])
        return float((q * k).sum())

    assert score(40, 31) == pytest.approx(score(409, 400), abs=1e-12)
    assert score(40, 31) != pytest.approx(score(40, 30), abs=1e-6)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(UnknownBackend, match="silu_mul has no backend 'cuda'; it has: reference"):
        silu_mul(torch.zeros(1, 2), backend="cuda")
