"""One agent, configured by ``connect --write``, does the scripted task; what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import script
from .agents import Agent
from .backend import Backend
from .sandbox import Ran, Sandbox
from .serving import KEY_ENV, Served, cached_share


@dataclass(frozen=True, slots=True)
class Done:
    """shown: what connect printed. rows: the ledger's, one a request of the agent."""

    shown: str
    ran: Ran
    rows: list[dict[str, Any]]
    finished: bool

    def summary(self, version: str) -> dict[str, Any]:
        return {
            "version": version,
            "finished": self.finished,
            "status": self.ran.status,
            "seconds": round(self.ran.seconds, 1),
            "turns": len(self.rows),
            "surfaces": sorted({row["surface"] for row in self.rows}),
            "sessions": len({row["session_id"] for row in self.rows}),
            "cached_share": cached_share(self.rows),
            "client": self.rows[0]["client"] if self.rows else None,
        }


def command_of(shown: str) -> str:
    """The command that connect said to type."""
    return shown.partition("type:\n")[2].splitlines()[0].strip()


def do_task(
    agent: Agent, sandbox: Sandbox, backend: Backend, gateway: Served, limit_s: float = 300
) -> Done:
    """Connect the agent, with the sandbox's key where it has one, and run the task. Fails where the
    script could not go on."""
    backend.begin(sandbox.work)
    before = gateway.mark()
    key = ("--key-env", KEY_ENV) if sandbox.key else ()
    shown = sandbox.connect(agent.name, "--url", gateway.url, *key, "--write")
    checked = len(gateway.settled(before, len(backend.requests)))
    backend.begin(sandbox.work, text_edits=agent.text_edits)
    ran = sandbox.run(agent, command_of(shown), script.TASK, limit_s)
    rows = gateway.settled(before + checked, len(backend.requests))
    assert not backend.failure, backend.failure
    finished = sandbox.edited and sandbox.checked and "TASK-DONE" in ran.output
    return Done(shown, ran, rows, finished)
