"""The embedded model on the exact kernels of one instruction set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agentspec_kernels._cpu.build import ISA_FLAGS, Unavailable, runs_here

from agentspec.engine.exact_runner import ExactRunner
from agentspec.settings import EngineSettings
from tests.exact.world import World

ISAS = [isa for isa in ISA_FLAGS if runs_here(isa)]
"""Those that this processor has, the widest first."""


@pytest.fixture(scope="session")
def make_world(model_path: Path) -> Callable[[str, int], World]:
    """(instruction set, output limit) -> a world. Its runner has two threads."""

    def make(isa: str, max_tokens: int) -> World:
        settings = EngineSettings(threads=2, context_tokens=2048, kv_tokens=16_384)
        try:
            runner = ExactRunner.load(settings, model_path, isa=isa)
        except Unavailable as error:
            pytest.skip(str(error))
        torch.set_num_threads(1)  # the kernels have threads of their own; torch only samples
        return World(runner, model_path, max_tokens)

    return make
