"""How many threads the machine has for the linear layers."""

from __future__ import annotations

import os

import pytest

from agentspec.engine.model import threads


def machine(monkeypatch: pytest.MonkeyPatch, siblings: dict[int, str], quota: str) -> None:
    """A machine whose CPUs share cores as told."""
    files = {threads._SIBLINGS.format(cpu=cpu): text for cpu, text in siblings.items()}
    files[threads._QUOTA] = quota
    monkeypatch.setattr(threads, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(siblings), raising=False)


@pytest.mark.parametrize(
    ("siblings", "quota", "count"),
    (
        ({0: "0", 1: "1"}, "", 2),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, "max 100000", 2),
        ({0: "0-1", 1: "0-1"}, "", 1),
        ({0: "", 1: "", 2: ""}, "", 3),
        ({i: str(i) for i in range(64)}, "200000 100000", 2),
        ({i: str(i) for i in range(64)}, "250000 100000", 3),
        ({0: "0"}, "10000 100000", 1),
    ),
)
def test_physical_cores_within_the_quota(
    monkeypatch: pytest.MonkeyPatch, siblings: dict[int, str], quota: str, count: int
) -> None:
    machine(monkeypatch, siblings, quota)
    assert threads.default_threads() == count


def test_this_machine_has_some() -> None:
    assert 1 <= threads.default_threads() <= (os.cpu_count() or 1)
