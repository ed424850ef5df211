"""What a training run was: command, commit, data, settings, budget. Written beside the draft."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from agentspec import __version__


def machine() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "agentspec": __version__,
    }


def _cpu() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit() -> str | None:
    """Of the checkout that this code runs from, "+" behind it where it was changed; or None."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def build(**facts: Any) -> dict[str, Any]:
    """The record with when, where and by what command."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": commit(),
        "ended": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": machine(),
        **facts,
    }
