"""The GPU's bench of the engine at a small shape on the CPU, and without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from agentspec.bench import engine_gpu
from agentspec.bench.engine_gpu import SHAPE, Bench, Plan
from agentspec.bench.workloads import BenchError
from agentspec.engine.model.config import ModelConfig

SMALL: ModelConfig = replace(
    SHAPE, layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=16, vocab=256,
    context_tokens=128,
)  # fmt: skip
PLAN = Plan(count=1, sequences=[1, 2], widths=[1, 4], contexts=[24, 48], acceptance=[1.0, 0.0, 0.6])


@pytest.fixture(scope="module")
def bench() -> Bench:
    torch.manual_seed(0)
    return Bench(replace(PLAN, tokens=24), SMALL, torch.device("cpu"), torch.float64)


def test_passes_of_every_size(bench: Bench):
    rows = list(bench.passes())
    assert [(r["sequences"], r["context"], r["width"]) for r in rows] == [
        (s, c, w) for s in (1, 2) for c in (24, 48) for w in (1, 4)
    ]
    assert all(row["over_one"] == 1.0 for row in rows if row["width"] == 1)


def test_acceptance_is_what_was_asked_for_and_the_text_stays(bench: Bench):
    rows = list(bench.decoding())
    plain = [row for row in rows if row["width"] == 0]
    assert [row["sequences"] for row in plain] == [1, 2]
    drafted = {(r["sequences"], r["acceptance"]): r for r in rows if r["width"]}
    assert len(drafted) == 6
    for (sequences, acceptance), row in drafted.items():
        assert row["same_text"] == sequences
        length = row["accepted_length"]
        if acceptance == 0.0:
            assert length == pytest.approx(1.0, abs=0.05)
        elif acceptance == 1.0:
            assert length == pytest.approx(4.0, abs=0.7)
        else:
            assert 1.4 < length < 3.0


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BenchError, match=r"--device cuda: torch .* nothing was measured"):
        engine_gpu.run(PLAN)
