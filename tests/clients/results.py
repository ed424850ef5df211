"""What the runs showed, in ``build/clients.json``: one entry an agent, kept from run to run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.bench import report

from .sandbox import loopback_only

FILE = Path(__file__).parents[2] / "build" / "clients.json"


@dataclass(frozen=True, slots=True)
class Results:
    """Entries ``agents.NAME.KEY``; each ``put`` is on disk when it returns."""

    document: dict[str, Any]

    @classmethod
    def open(cls) -> Results:
        try:
            document = json.loads(FILE.read_text())
        except (OSError, ValueError):
            document = {"agents": {}}
        document["machine"] = report.machine()
        document["commit"] = report.commit()
        document["loopback_only"] = loopback_only()
        return cls(document)

    def put(self, agent: str, key: str, value: Any) -> None:
        self.document["agents"].setdefault(agent, {})[key] = value
        FILE.parent.mkdir(exist_ok=True)
        new = FILE.with_suffix(".new")
        new.write_text(json.dumps(self.document, indent=1, ensure_ascii=False) + "\n")
        os.replace(new, FILE)

    def get(self, agent: str, key: str) -> Any:
        return self.document["agents"].get(agent, {}).get(key)
