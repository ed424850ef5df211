"""Counted operations against those that torch's own counter sees."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from agentspec.engine.train.distributed import Ranks
from tests.engine.train.two_processes import stepper


@pytest.mark.parametrize("method", ["dspark", "dflash", "jetspec", "eagle3", "mtp"])
def test_counted_operations_are_those_of_the_products(method: str):
    made = stepper(method, Ranks())
    with FlopCounterMode(display=False) as counter:
        sums = made.step(0)
    seen = counter.get_flop_counts()["Global"]
    products = sum(n for op, n in seen.items() if op in PRODUCTS)
    assert sums.flops == pytest.approx(products, rel=0.05)


PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm}
