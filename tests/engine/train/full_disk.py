"""Stages on a disk that is full; run by ``test_pipeline.py`` in a process of its own, since what
stands for the full disk (no file may grow above 2 KiB) holds for all that a process writes."""

from __future__ import annotations

import resource
import shutil
import sys
from pathlib import Path

import torch

from agentspec.engine.train.caching import cache
from agentspec.engine.train.config import load
from agentspec.engine.train.distributed import Ranks
from agentspec.engine.train.errors import TrainError
from agentspec.engine.train.target import Target
from agentspec.engine.train.trainer import Run


def main(path: str) -> None:
    """Print what saving a checkpoint and caching features say."""
    torch.set_num_threads(1)
    toml = load(Path(path))
    run = Run.open(toml, Target.open(toml), Ranks())
    shutil.rmtree(toml.features)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    for stage in (run.save, lambda: cache(toml)):
        try:
            stage()
        except TrainError as error:
            sys.stdout.write(f"{type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1])
