"""What the runs showed, in ``build/clients.json``: one entry an agent, kept from run to run.

Runs may write at the same time (one agent each): every write takes the file's lock and reads anew.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.bench import report

from .sandbox import loopback_only

FILE = Path(__file__).parents[2] / "build" / "clients.json"


@dataclass(frozen=True, slots=True)
class Results:
    """Entries ``agents.NAME.KEY``; each ``put`` is on disk when it returns.

    about: machine, commit, and whether other hosts could be reached; of the latest run.
    """

    about: dict[str, Any]

    @classmethod
    def open(cls) -> Results:
        FILE.parent.mkdir(exist_ok=True)
        return cls(
            {
                "machine": report.machine(),
                "commit": report.commit(),
                "loopback_only": loopback_only(),
            }
        )

    def put(self, agent: str, key: str, value: Any) -> None:
        with _held():
            document = _read() | self.about
            document["agents"].setdefault(agent, {})[key] = value
            _write(document)

    def add(self, agent: str, key: str, name: str, value: Any) -> None:
        """Set one entry of the object ``KEY``; its others stay."""
        with _held():
            document = _read() | self.about
            document["agents"].setdefault(agent, {}).setdefault(key, {})[name] = value
            _write(document)


@contextmanager
def _held() -> Iterator[None]:
    with FILE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read() -> dict[str, Any]:
    try:
        return json.loads(FILE.read_text())
    except FileNotFoundError:
        return {"agents": {}}


def _write(document: dict[str, Any]) -> None:
    new = FILE.with_suffix(".new")
    new.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    os.replace(new, FILE)
