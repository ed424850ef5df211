"""Each agent, as ``connect --write`` configures it, does the whole task against the stand-in.

The gateway asks for a key here, as it does beyond loopback; for the faults it asks for none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .agents import AGENTS, Agent
from .backend import Backend
from .conftest import KEY
from .prompt import measure
from .results import Results
from .sandbox import Sandbox, version_of
from .serving import KEY_ENV, Served
from .task import do_task

pytestmark = [pytest.mark.clients, pytest.mark.model]


@pytest.mark.parametrize("agent", AGENTS, indirect=True)
def test_an_agent_finishes_its_task(
    agent: Agent,
    tmp_path: Path,
    backend: Backend,
    keyed: Served,
    results: Results,
    model_path: Path,
):
    sandbox = Sandbox.make(tmp_path, KEY)
    version = version_of(agent, sandbox)
    done = do_task(agent, sandbox, backend, keyed)
    results.put(agent.name, "scripted", done.summary(version))
    loop = [request for request in backend.requests if request.get("tools") or agent.text_edits]
    results.put(agent.name, "prompt", measure(loop[0], model_path))
    assert done.finished, (done.ran, sandbox.edited, sandbox.checked)
    assert done.ran.status == 0
    assert [row["status"] for row in done.rows] == ["ok"] * len(backend.requests)
    _connect_again_and_undo(agent, sandbox, keyed, done.shown)


def _connect_again_and_undo(agent: Agent, sandbox: Sandbox, gateway: Served, shown: str):
    """Also when the agent has since written into what connect wrote."""
    written = [Path(line.removeprefix("wrote ")) for line in shown.splitlines() if "wrote " in line]
    assert written and not any(KEY in path.read_text() for path in written)
    again = ("--url", gateway.url, "--key-env", KEY_ENV, "--no-check")
    sandbox.connect(agent.name, *again, "--write")
    sandbox.connect(agent.name, "--undo")
    left = [path for path in written if path.exists() and gateway.url in path.read_text()]
    assert not left
