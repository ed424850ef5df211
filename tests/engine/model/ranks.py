"""What each of two ranks does in ``test_parallel.py``: ``python -m tests.engine.model.ranks ...``.

Arguments: rank, the file where ranks meet, the folder of models, the file for rank 0's results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from agentspec.engine.batch import Span
from agentspec.engine.model.shard import RanksDisagree, Shard
from agentspec.engine.parallel import ParallelRunner, Wire, join, obey
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings
from tests.engine.model.families import TOKENS

NAMES = ("llama-3.1", "qwen3", "qwen3-moe", "gemma3")
TREE, PAGES = (-1, 0, 0, -1, 2), [9, 4, 30, 2, 17, 5, 11, 3]


def settings(dtype: str, exact: bool, **more: Any) -> EngineSettings:
    options: dict[str, Any] = {"dtype": dtype, "threads": 1, "page_tokens": 4, "kv_tokens": 256}
    options |= {"context_tokens": 128, "tensor_parallel": 2, "exact": exact} | more
    return EngineSettings(**options)


def passes(runner: Runner) -> torch.Tensor:
    """Logits of a prompt in two chunks, of a tree of drafts, and of what follows its longest path,
    whose K/V is moved."""
    found = [runner.forward([Span(TOKENS[:9], 0, PAGES, [0, 8])]).logits]
    span = Span([*TOKENS[9:12], *TOKENS[13:18]], 9, PAGES, list(range(8)), TREE)
    found.append(runner.forward([span, Span(TOKENS[:5], 0, [20, 21], [4])]).logits)
    runner.compact(PAGES, [(12 + 2, 12 + 1), (12 + 4, 12 + 2)])
    found.append(runner.forward([Span([7], 15, PAGES, [0])]).logits)
    return torch.cat(found)


def main(rank: int, meet: str, models: Path, to: Path) -> None:
    shard = join(settings("fp64", False), rank, 2, meet)
    results: dict[str, Any] = {}
    for name in NAMES:
        for exact in (False, True):
            chosen = settings("fp32" if exact else "fp64", exact)
            part = Shard(rank, 2, exact=exact, checked=True)
            if rank == 0:
                runner = opened(chosen, models / name, part)
                results[f"{name} {exact}"] = passes(runner)
                runner.close()
            else:
                obey(Runner.load(chosen, models / name, shard=part), Wire())
    results["disagree"] = disagreement(models / "qwen3", shard)
    if rank == 0:
        from tests.engine.model import ranks_draft

        results["draft"] = ranks_draft.texts(models / "drafted", Shard(0, 2, True, True))
        torch.save(results, to)
    else:
        chosen = settings("fp32", True, page_tokens=16, kv_tokens=2048, context_tokens=256)
        obey(Runner.load(chosen, models / "drafted", shard=Shard(1, 2, True, True)), Wire())
    dist.destroy_process_group()


def opened(chosen: EngineSettings, path: Path, shard: Shard) -> ParallelRunner:
    """Rank 0's runner, the other ranks being there already."""
    runner = ParallelRunner.load(chosen, path, shard=shard)
    assert isinstance(runner, ParallelRunner)
    runner.wire = Wire()
    return runner


def disagreement(path: Path, shard: Shard) -> str:
    """What is said where one rank has other embeddings than the other; on both of them."""
    runner = Runner.load(settings("fp64", False), path, shard=shard)
    runner.model.embedding[TOKENS[5], 5] += shard.rank  # pyright: ignore
    try:
        runner.forward([Span(TOKENS[:6], 0, PAGES, [5])])
    except RanksDisagree as error:
        return str(error)
    return "nothing"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
