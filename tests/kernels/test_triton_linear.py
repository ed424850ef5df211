"""The batch-invariant product, its int8 and its fp8 twin against their definitions."""

from __future__ import annotations

import pytest
import torch
from agentspec_kernels.linear import kernel, linear
from agentspec_kernels.linear_fp8 import linear_fp8
from agentspec_kernels.linear_w8 import linear_w8

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2}
DTYPES = tuple(TOLERANCE)
SHAPES = [(1, 5, 3), (3, 70, 65), (66, 129, 10), (2, 1030, 7), (0, 8, 4)]
pytestmark = pytest.mark.usefixtures("poisoned")


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) / shape[-1] ** 0.5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, inputs, outputs", SHAPES)
def test_linear(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> None:
    x, weight = random(rows, inputs, dtype=dtype), random(outputs, inputs, dtype=dtype)
    found, expected = (linear(x, weight, backend=b) for b in ("exact", "reference"))
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [None, 16, 32, 96])
def test_linear_w8(group: int | None, dtype: torch.dtype) -> None:
    inputs = 75 if group is None else 1152
    x = random(3, inputs, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-127, 128, (67, inputs), generator=generator, dtype=torch.int8)
    scale = torch.rand(67, 1 if group is None else inputs // group, generator=generator) / 64
    found, expected = (linear_w8(x, codes, scale, backend=b) for b in ("triton", "reference"))
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [None, 32, 96])
def test_linear_fp8(group: int | None, dtype: torch.dtype) -> None:
    inputs = 75 if group is None else 1152
    x, weight = random(3, inputs, dtype=dtype), random(67, inputs, dtype=torch.float32)
    codes = (400 * weight).clamp(-448, 448).to(torch.float8_e4m3fn)
    scale = torch.rand(67, 1 if group is None else inputs // group) / 64
    found, expected = (linear_fp8(x, codes, scale, backend=b) for b in ("triton", "reference"))
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)


def test_every_code_of_fp8_is_read_right() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[(codes & 127) != 127].view(torch.float8_e4m3fn)[:, None]
    x, scale = torch.ones(1, 1), torch.ones(len(codes), 1)
    found = linear_fp8(x, codes, scale, backend="triton")
    assert torch.equal(found[0], codes.float()[:, 0])


@pytest.mark.parametrize("quantised", [False, True])
def test_a_row_does_not_depend_on_the_batch(quantised: bool) -> None:
    x = random(70, 300, dtype=torch.bfloat16)
    weight, scale = random(5, 300, dtype=torch.bfloat16), None
    if quantised:
        weight, scale = (300 * weight).to(torch.int8), torch.rand(5, 1)
    whole = kernel.linear(x, weight, scale, part=128)
    in_parts = kernel.linear(x, weight, scale, part=128, few=100)
    assert torch.equal(whole, in_parts)
    for rows in (slice(0, 1), slice(63, 66), slice(69, 70), slice(20, 53)):
        assert torch.equal(kernel.linear(x[rows], weight, scale, part=128), whole[rows])
