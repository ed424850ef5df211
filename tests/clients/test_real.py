"""Agents on the real engine: no protocol error over a whole run, however little the model can do.

A model of 135M parameters does not solve the task; what is tested is that every turn is answered in
a form which the agent takes, and what the ledger says of cache and speculation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import script
from .agents import AGENTS, Agent
from .results import Results
from .sandbox import Sandbox
from .serving import Served, accepted_length, cached_share, serving
from .task import command_of

pytestmark = [pytest.mark.clients, pytest.mark.model]

LIMIT_S = 600.0
REAL = [name for name, agent in AGENTS.items() if agent.real]


@pytest.fixture(scope="module")
def whole(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """``agentspec serve`` as a user starts it."""
    with serving(tmp_path_factory.mktemp("serve"), "serve", limit_s=300) as served:
        yield served


@pytest.mark.parametrize("agent", REAL, indirect=True)
def test_an_agent_runs_on_the_engine(
    agent: Agent, sandbox: Sandbox, whole: Served, results: Results
):
    before = whole.mark()
    shown = sandbox.connect(agent.name, "--url", whole.url, "--write")
    assert "checked: smollm2-135m-instruct" in shown
    checked = len(whole.settled(before, 1 + (agent.name == "cline")))
    ran = sandbox.run(agent, command_of(shown), script.TASK, LIMIT_S)
    rows = whole.settled(before + checked, 1)
    statuses = dict.fromkeys(("ok", "error", "cancelled", "lost"), 0)
    for row in rows:
        statuses[row["status"]] += 1
    results.put(
        agent.name,
        "real",
        {
            "ended": ran.status is not None,
            "status": ran.status,
            "seconds": round(ran.seconds, 1),
            "turns": len(rows),
            "statuses": statuses,
            "in_tok": [row["in_tok"] for row in rows],
            "cached_share": cached_share(rows),
            "accepted_length": accepted_length(rows),
            "tool_calls": sum(row["tool_calls"] for row in rows),
            "tool_calls_valid": sum(row["tool_calls_valid"] for row in rows),
        },
    )
    assert statuses["ok"] >= 1 and statuses["lost"] == 0
    wrong = [row for row in rows if row["status"] == "error"]
    assert {row["error_code"] for row in wrong} <= {"context_length_exceeded"}, wrong
    assert all(row["tool_calls"] == row["tool_calls_valid"] for row in rows)
