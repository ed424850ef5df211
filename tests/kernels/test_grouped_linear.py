"""Rows by their own expert's weight, and the product whose bits depend on nothing else."""

from __future__ import annotations

import pytest
import torch
from agentspec_kernels.grouped_linear import grouped_linear, kernel
from agentspec_kernels.linear import linear

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 1.6e-2}


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (values / shape[-1] ** 0.5).to(dtype)


def chosen(rows: int, experts: int) -> torch.Tensor:
    """Experts of rows, some of them of another rank (-1, and beyond the last)."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randint(-1, experts + 1, (rows,), generator=generator)


def by_loop(x: torch.Tensor, weight: torch.Tensor, experts: torch.Tensor, choices: int):
    rows = []
    for row, expert in enumerate(experts.tolist()):
        known = 0 <= expert < len(weight)
        product = weight[expert if known else 0].double() @ x[row // choices].double()
        rows.append(product if known else 0 * product)
    return torch.stack(rows)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("backend", "dtype"),
    (
        ("reference", torch.float64),
        ("reference", torch.bfloat16),
        ("torch", torch.float64),
        ("torch", torch.bfloat16),
        ("ordered", torch.float64),
        ("triton", torch.float32),
        ("triton", torch.bfloat16),
        ("triton", torch.float64),
    ),
)
@pytest.mark.parametrize(
    ("rows", "choices", "experts", "inputs", "outputs"), ((1, 1, 1, 3, 5), (21, 3, 4, 70, 66))
)
def test_equals_a_loop_over_rows(
    backend: str, dtype: torch.dtype, rows: int, choices: int, experts: int, inputs: int, outputs
) -> None:
    x, weight = random(rows, inputs, dtype=dtype), random(experts, outputs, inputs, dtype=dtype)
    owners = chosen(rows * choices, experts)
    found = grouped_linear(x, weight, owners, choices=choices, backend=backend)
    truth = by_loop(x, weight, owners, choices)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), truth, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_tiles_hold_every_row_once_with_its_expert() -> None:
    owners = torch.tensor([2, 0, 2, -1, 2, 5, 0] * 9)
    order, firsts, ends, tiles = kernel.tiles(owners, 3)
    seen = []
    for first, expert in zip(firsts.tolist(), tiles.tolist(), strict=True):
        if expert >= 0:
            rows = order[first : min(first + kernel.ROWS, int(ends[expert]))].tolist()
            assert rows and all(owners[row] == expert for row in rows)
            seen += rows
    assert sorted(seen) == [i for i, owner in enumerate(owners.tolist()) if 0 <= owner < 3]


@pytest.mark.usefixtures("poisoned")
def test_a_row_does_not_depend_on_the_batch() -> None:
    x, weight = random(19, 70, dtype=torch.bfloat16), random(3, 5, 70, dtype=torch.bfloat16)
    owners = torch.arange(19) % 3
    whole = grouped_linear(x, weight, owners, backend="triton")
    for row in (0, 7, 18):
        one = slice(row, row + 1)
        alone = grouped_linear(x[one], weight, owners[one], backend="triton")
        assert torch.equal(alone, whole[one])


@pytest.mark.parametrize("inputs", (1, 2, 37, 64))
def test_the_ordered_product_is_right_and_the_same_in_any_company(inputs: int) -> None:
    x, weight = random(9, inputs, dtype=torch.float32), random(33, inputs, dtype=torch.float32)
    whole = linear(x, weight, backend="ordered")
    truth = x.double() @ weight.double().T
    torch.testing.assert_close(whole.double(), truth, rtol=2e-5, atol=2e-6)
    for rows in (slice(0, 1), slice(3, 8)):
        for outputs in (slice(0, 16), slice(32, 33), slice(5, 31)):
            part = linear(x[rows], weight[outputs], backend="ordered")
            assert torch.equal(part, whole[rows, outputs])
