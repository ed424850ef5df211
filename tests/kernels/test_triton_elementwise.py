"""The Triton norm, rotation and gate against their definitions, over odd shapes."""

from __future__ import annotations

import pytest
import torch
from agentspec_kernels.gelu_mul import gelu_mul
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope, rope_table
from agentspec_kernels.silu_mul import silu_mul

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2}
DTYPES = tuple(TOLERANCE)
pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    bound = TOLERANCE[expected.dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 576), (2, 3, 129), (0, 8)])
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = random(*shape, dtype=dtype), random(shape[-1], dtype=dtype)
    check(
        rms_norm(x, weight, 1e-5, backend="triton"), rms_norm(x, weight, 1e-5, backend="reference")
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, features", [(1, 1), (3, 7), (2, 1025), (0, 4)])
@pytest.mark.parametrize("op", [silu_mul, gelu_mul])
def test_gates(op, rows: int, features: int, dtype: torch.dtype) -> None:
    x = 20 * random(rows, 2 * features, dtype=dtype)
    check(op(x, backend="triton"), op(x, backend="reference"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, heads, size", [(1, 1, 2), (3, 5, 6), (2, 9, 64), (2, 3, 80)])
def test_rope(rows: int, heads: int, size: int, dtype: torch.dtype) -> None:
    cos, sin = (table[-rows:].float() for table in rope_table(900, size, 1e4))
    packed = random(rows, (heads + 2) * size, dtype=dtype)  # q beside k and v, as a layer has it
    x = packed[:, : heads * size].view(rows, heads, size)
    check(rope(x, cos, sin, backend="triton"), rope(x, cos, sin, backend="reference"))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    x, weight = random(5, 77, dtype=torch.bfloat16), random(77, dtype=torch.bfloat16)
    whole = rms_norm(x, weight, 1e-5, backend="triton")
    alone = [rms_norm(x[i : i + 1], weight, 1e-5, backend="triton") for i in range(5)]
    assert torch.equal(whole, torch.cat(alone))


def test_float64_goes_by_the_definition() -> None:
    x, weight = random(2, 9, dtype=torch.float64), random(9, dtype=torch.float64)
    found = rms_norm(x, weight, 1e-5, backend="triton")
    assert torch.equal(found, rms_norm(x, weight, 1e-5, backend="reference"))
