"""Fixtures that every room's tests share, and limits that must hold before torch is loaded."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

# Two busy OpenMP pools on two cores spend their time in each other's spin barriers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Triton reads this when a kernel is decorated, hence before any test imports one.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import hypothesis
import pytest

hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The embedded model's GGUF in the user's cache; fetched by the first test that asks."""
    from agentspec.engine.model.fetch import fetch

    return fetch()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that returns a loopback TCP port nobody listens on now."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return find
