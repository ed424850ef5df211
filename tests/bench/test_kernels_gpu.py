"""The GPU's bench of kernels, run by Triton's interpreter at small sizes; and without a GPU."""

from __future__ import annotations

import pytest
import torch

from agentspec.bench import kernels_gpu
from agentspec.bench.kernels_gpu_cases import CASES, Sizes
from agentspec.bench.workloads import BenchError

SMALL = Sizes(
    hidden=64, ffn=96, heads=4, kv_heads=2, head_size=16, vocab=200, page=4, span=2, group=32,
    experts=4, choices=2, expert_hidden=32, expert_ffn=16, dtype=torch.float32,
)  # fmt: skip


def timer(call, count: int) -> list[float]:
    """Ten microseconds, whatever it is."""
    call()
    return [10.0] * count


def test_every_kernel_computes_what_torch_does() -> None:
    plan = kernels_gpu.Plan(count=2, rows=[3], contexts=[5], ops=list(CASES))
    rows = list(kernels_gpu.measured(plan, SMALL, torch.device("cpu"), 100.0, timer))
    assert [row["op"] for row in rows] == list(CASES)
    for row in rows:
        assert row["apart"] is None or row["apart"] < 1e-5, row
        assert row["over_floor"] == pytest.approx(10.0 / row["floor_us"])
    assert [row["op"] for row in rows if row["apart"] is None] == ["accept"]


def test_bytes_of_a_norm_by_hand() -> None:
    call = CASES["rms_norm"].call(SMALL, 3, 0, torch.device("cpu"))
    assert call.bytes == 4 * (3 * 64 + 3 * 64 + 64)


def test_bytes_of_attention_by_hand() -> None:
    """Two spans of two rows behind 5: 7 positions each, K and V of 2 heads of 16; queries, out."""
    call = CASES["paged_attention"].call(SMALL, 4, 5, torch.device("cpu"))
    assert call.bytes == 4 * (2 * 2 * 7 * 2 * 16 + 2 * 4 * 4 * 16)


def test_the_copys_bandwidth() -> None:
    assert kernels_gpu.copied_bytes_per_us(torch.device("cpu"), timer, 3, 1000) == 200.0


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    plan = kernels_gpu.Plan(count=1, rows=[1], contexts=[8], ops=["rope"])
    with pytest.raises(BenchError, match=r"--device cuda: torch .* nothing was measured"):
        kernels_gpu.run(plan)


def test_an_unknown_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_gpu, "required", lambda: torch.device("cpu"))
    plan = kernels_gpu.Plan(count=1, rows=[1], contexts=[8], ops=["ropes"])
    with pytest.raises(BenchError, match="no kernel 'ropes'; there are accept, grouped_linear"):
        kernels_gpu.run(plan)
