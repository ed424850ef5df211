"""Two ranks over gloo against one: logits, trees, a draft, what each reads, how they disagree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agentspec.engine.batch import Span
from agentspec.engine.model import load_model
from agentspec.engine.model.errors import UnsupportedModel
from agentspec.engine.model.safetensors_folder import SafetensorsCheckpoint
from agentspec.engine.model.shard import RanksDisagree, Shard
from agentspec.engine.parallel import Pass, Wire
from agentspec.engine.runner import Runner
from agentspec.engine.runners import open_runner
from agentspec.settings import EngineSettings
from tests.engine.draft import blockworld
from tests.engine.model import ranks, ranks_draft
from tests.engine.model.families import CONFIGS, weights_of, write

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name in ranks.NAMES:
        write(root / name, CONFIGS[name], weights_of(CONFIGS[name]))
    blockworld.write_target(root / "drafted", mixing=0.1)
    return root


@pytest.fixture(scope="module")
def results(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What rank 0 of two processes found."""
    scratch = tmp_path_factory.mktemp("ranks")
    common = [sys.executable, "-m", "tests.engine.model.ranks"]
    rest = [str(scratch / "meet"), str(models), str(scratch / "found")]
    running = [
        subprocess.Popen([*common, str(rank), *rest], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=400)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)[-4000:]
    return torch.load(scratch / "found")


@pytest.mark.parametrize("name", ranks.NAMES)
def test_two_ranks_are_near_one(models: Path, results: dict[str, Any], name: str) -> None:
    one = ranks.passes(Runner.load(ranks.settings("fp64", False), models / name))
    torch.testing.assert_close(results[f"{name} False"], one, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ranks.NAMES)
def test_two_exact_ranks_have_the_bits_of_one(
    models: Path, results: dict[str, Any], name: str
) -> None:
    alone = Shard(exact=True)
    one = ranks.passes(Runner.load(ranks.settings("fp32", True), models / name, shard=alone))
    assert torch.equal(results[f"{name} True"], one)
    stock = ranks.passes(Runner.load(ranks.settings("fp32", False), models / name))
    torch.testing.assert_close(one, stock, rtol=1e-3, atol=1e-3)


def test_a_draft_beside_two_ranks_changes_no_text(models: Path, results: dict[str, Any]) -> None:
    plain = ranks_draft.texts(models / "drafted", Shard(exact=True))
    assert [text for text, _ in results["draft"]] == [text for text, _ in plain]
    assert all(text for text, _ in plain)
    assert sum(accepted for _, accepted in results["draft"]) > 4


def test_ranks_that_came_to_different_rows_stop(results: dict[str, Any]) -> None:
    assert results["disagree"] == "ranks computed different rows of [1, 48]"


@pytest.mark.parametrize("exact", (False, True))
@pytest.mark.parametrize("name", ("qwen3", "qwen3-moe", "gemma3"))
def test_a_rank_reads_its_own_slices_only(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str, exact: bool
) -> None:
    read, plain = [], SafetensorsCheckpoint.read

    def counted(checkpoint, tensor, part=None):
        found = plain(checkpoint, tensor, part)
        read.append((tensor, found.numel()))
        return found

    monkeypatch.setattr(SafetensorsCheckpoint, "read", counted)
    whole = weights_of(CONFIGS[name])
    load_model(models / name, dtype=torch.float32, shard=Shard(1, 2, exact))
    counts = dict(read)
    assert len(counts) == len(read)
    for tensor, weight in whole.items():
        alike = "norm" in tensor or "embed" in tensor or "mlp.gate." in tensor
        if "experts" in tensor:
            mine = int(tensor.split("experts.")[1].split(".")[0]) >= 3
            assert counts.get(tensor) == (weight.numel() if mine else None)
        else:
            assert counts[tensor] == weight.numel() // (1 if alike else 2), tensor


@pytest.mark.parametrize("change", ("", "a token", "a message lost"))
def test_a_rank_that_heard_something_else_stops(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Rank 0's messages as they would come over the net, one of them changed or lost."""
    sent: list[torch.Tensor] = []
    said, heard = Wire(), Wire()
    spans = [Span([1, 2, 3], 0, [4], [2], (-1, 0)), Span([9], 3, [4], [0])]
    monkeypatch.setattr("torch.distributed.broadcast", lambda x, _, group: sent.append(x.clone()))
    for span in spans:
        said.say(Pass([span]))
    if change == "a token":
        sent[3][sent[3].tolist().index(9)] = 8
    if change == "a message lost":
        del sent[:2]
    monkeypatch.setattr("torch.distributed.broadcast", lambda x, _, group: x.copy_(sent.pop(0)))
    if change != "a message lost":
        assert heard.hear() == Pass(spans[:1])
    if not change:
        assert heard.hear() == Pass(spans[1:])
        return
    with pytest.raises(RanksDisagree, match="did not hear what rank 0 said"):
        heard.hear()


def test_fewer_heads_than_ranks_are_had_by_several() -> None:
    assert [Shard(rank, 4).shared("x", 2) for rank in range(4)] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert [Shard(rank, 2).shared("x", 4) for rank in range(2)] == [(0, 2), (2, 4)]


def test_what_cannot_be_shared_is_refused(models: Path) -> None:
    with pytest.raises(UnsupportedModel, match="2 K/V heads can't be split over 3 ranks"):
        load_model(models / "qwen3", dtype=torch.float32, shard=Shard(0, 3))
    int8 = EngineSettings(dtype="int8", tensor_parallel=2)
    with pytest.raises(UnsupportedModel, match="runs on one CPU process"):
        open_runner(int8, models / "qwen3")
    gpus = EngineSettings(device="cuda", dtype="bf16", tensor_parallel=2)
    with pytest.raises(UnsupportedModel, match=r"tensor_parallel = 2, but there are \d GPUs"):
        open_runner(gpus, models / "qwen3")


def in_a_process(models: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run ``body`` where ``runner`` is one of two ranks, in a process whose only group that is."""
    script = models / "script.py"
    script.write_text(
        "import os, signal, sys, torch; from pathlib import Path\n"
        "from tests.engine.model import ranks\n"
        "from agentspec.engine.runners import open_runner\n"
        "if __name__ == '__main__':\n"
        "    runner = open_runner(ranks.settings('fp64', False), Path(sys.argv[1]))\n" + body
    )
    command = [sys.executable, str(script), str(models / "qwen3"), str(models / "found")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def test_the_setting_starts_the_other_ranks(models: Path) -> None:
    done = in_a_process(
        models,
        "    torch.save(ranks.passes(runner), sys.argv[2]); runner.close()\n"
        "    assert all(child.exitcode == 0 for child in runner.followers)\n",
    )
    assert done.returncode == 0, done.stderr[-4000:]
    one = ranks.passes(Runner.load(ranks.settings("fp64", False), models / "qwen3"))
    torch.testing.assert_close(torch.load(models / "found"), one, rtol=1e-10, atol=1e-10)


def test_an_engine_that_lost_a_rank_ends(models: Path) -> None:
    done = in_a_process(
        models, "    os.kill(runner.followers[0].pid, signal.SIGKILL); signal.pause()\n"
    )
    assert done.returncode == -signal.SIGTERM
    assert "another rank of engine.tensor_parallel ended" in done.stderr
