"""Two processes over gloo train the draft that one process trains."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from agentspec.engine.train.distributed import Ranks
from tests.engine.train.two_processes import run
from tests.house.source import ROOT

METHODS = ("dspark", "eagle3")


def test_two_processes_are_one(tmp_path: Path, free_port: Callable[[], int]):
    import os

    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "test",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}",
    }
    command = [sys.executable, "-m", "tests.engine.train.two_processes", str(tmp_path), *METHODS]
    started = [
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | shared | {"RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for one in started:
        told, _ = one.communicate(timeout=300)
        assert one.returncode == 0, told
    for method in METHODS:
        alone, sums = run(method, Ranks())
        for rank in range(2):
            found = load_file(tmp_path / f"{method}-{rank}.safetensors")
            assert int(found["flops"]) == sums[-1].flops
            assert found["rows"].tolist() == [s.rows for s in sums]
            torch.testing.assert_close(
                found["loss"].double(), torch.tensor([s.loss for s in sums]).double()
            )
            for name, weight in alone.net.state_dict().items():
                torch.testing.assert_close(found[f"net.{name}"], weight, rtol=1e-9, atol=1e-12)
