"""How many threads the linear layers should use on this machine. No torch."""

from __future__ import annotations

import math
import os
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
_QUOTA = "/sys/fs/cgroup/cpu.max"


def default_threads() -> int:
    """Physical cores this process may run on, cut to the container's CPU quota; at least 1.

    Two threads of one core share its vector units, so the second only adds waiting.
    """
    cpus = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    cores = {_read(_SIBLINGS.format(cpu=cpu)) or str(cpu) for cpu in cpus}
    return max(1, min(len(cores), _quota(_read(_QUOTA))))


def _quota(text: str) -> int:
    """CPUs of a cgroup v2 ``cpu.max`` line ("200000 100000": 2), rounded up; huge if unlimited."""
    allowed, _, period = text.partition(" ")
    if not allowed.isdigit() or not period.isdigit():
        return 1 << 30
    return math.ceil(int(allowed) / int(period))


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
