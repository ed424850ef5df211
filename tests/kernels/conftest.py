"""Fixtures for kernels: memory that is not a number until it is written."""

from __future__ import annotations

import pytest
import torch

GUARD = 64


def _poison(flat: torch.Tensor) -> None:
    value = torch.nan if flat.is_floating_point() else torch.iinfo(flat.dtype).max
    flat.fill_(value)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch):
    """``torch.empty`` gives NaN (the largest integer) with a guard behind it, checked later."""
    empty, guards = torch.empty, []

    def filled(*shape, dtype=torch.float32, device="cpu"):
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        size = int(torch.Size(sizes).numel())
        whole = empty(size + GUARD, dtype=dtype, device=device)
        _poison(whole)
        guards.append((whole[size:], whole[size:].clone()))
        return whole[:size].view(sizes)

    monkeypatch.setattr(torch, "empty", filled)
    yield
    for found, expected in guards:
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
