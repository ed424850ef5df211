"""What needs no npm, in every test run: both vendors' SDKs and mini-swe-agent do the whole task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .agents import AGENTS, SDKS, Agent
from .backend import Backend
from .sandbox import Sandbox
from .serving import Served
from .task import do_task


@pytest.mark.parametrize("name", [*SDKS, "mini-swe-agent"])
def test_a_client_finishes_its_task(name: str, sandbox: Sandbox, backend: Backend, gateway: Served):
    agent: Agent = (SDKS | AGENTS)[name]
    if not agent.installed:
        pytest.skip(f"{name} is not installed: ONLY={name} scripts/clients.sh")
    done = do_task(agent, sandbox, backend, gateway)
    assert done.finished and done.ran.status == 0, done.ran
    assert [row["status"] for row in done.rows] == ["ok"] * 4
    assert len({row["session_id"] for row in done.rows}) == 1
    assert sum(row["cached_tok"] for row in done.rows[1:]) > 0
    surface = "messages" if name == "anthropic-sdk" else "chat"
    assert {row["surface"] for row in done.rows} == {surface}


def test_the_script_answers_by_the_clients_own_schemas(tmp_path: Path):
    """Its calls are checked against the schema; one that cannot be met fails the run."""
    from . import script

    schema = {
        "type": "object",
        "properties": {"filePath": {"type": "string"}, "n": {"type": "integer", "minimum": 5}},
        "required": ["filePath", "n"],
    }
    tool = {"type": "function", "function": {"name": "read", "parameters": schema}}
    asked = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    (call,) = script.answer(asked, tmp_path, text_edits=False).calls
    assert json.loads(call.arguments) == {"filePath": str(tmp_path / "calc.py"), "n": 5}
