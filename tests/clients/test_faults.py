"""The fault matrix: what each agent does when the server behind the gateway misbehaves.

Whatever it does: it must not run a command out of a torn call, must not ask without end, and must
end by itself or be on its way to it, with waits between its retries that grow.
"""

from __future__ import annotations

import re
import time

import pytest

from . import script
from .agents import AGENTS, Agent
from .backend import Backend, Fault
from .results import Results
from .sandbox import Ran, Sandbox
from .serving import Served
from .task import command_of

pytestmark = pytest.mark.clients

LIMIT_S, MOST_REQUESTS = 150.0, 80
HUNG_S = 60.0
"""Without a request for so long, an agent that still runs is taken for hung."""
# name: the fault, at the second request of the loop (the first of aider, which makes no more).
FAULTS: dict[str, Fault] = {
    "503 once": Fault("503", 2),
    "429 once, Retry-After 1": Fault("429", 2),
    "429 insufficient_quota, for ever": Fault("quota", 2, 99),
    "connection dies, once": Fault("abort", 2),
    "connection dies, for ever": Fault("abort", 2, 99),
    "dies inside a text": Fault("cut-text", 2),
    "dies inside a call": Fault("cut-call", 2),
    "claims a torn call is whole": Fault("torn-call", 2),
    "token limit inside a call": Fault("length-call", 2),
    "ends without finish_reason": Fault("no-finish", 2),
    "error event inside a text": Fault("error-event", 2),
    "silent for longer than the limit": Fault("stall", 2),
}
_NO_CALLS = {"dies inside a call", "claims a torn call is whole", "token limit inside a call"}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("agent", AGENTS, indirect=True)
def test_a_fault_is_survived_or_told(
    agent: Agent, name: str, sandbox: Sandbox, backend: Backend, gateway: Served, results: Results
):
    if agent.text_edits and name in _NO_CALLS:
        pytest.skip("it makes no calls")
    shown = sandbox.connect(agent.name, "--url", gateway.url, "--write", "--no-check")
    command = command_of(shown)
    fault = FAULTS[name]
    if agent.text_edits:
        fault = Fault(fault.kind, 1, fault.times)
    backend.begin(sandbox.work, text_edits=agent.text_edits, fault=fault)
    begun_s = time.monotonic()
    ran = sandbox.run(agent, command, script.TASK, LIMIT_S, backend.asked)
    ended_s = time.monotonic()
    backend.release.set()
    gaps = [b - a for a, b in zip(backend.arrived_s, backend.arrived_s[1:], strict=False)]
    finished = sandbox.edited and sandbox.checked and "TASK-DONE" in ran.output
    idle_s = ended_s - max([begun_s, *backend.arrived_s])
    found = {
        "outcome": _outcome(finished, ran, idle_s, fault),
        "requests": len(backend.requests),
        "torn_call_ran": sandbox.torn,
        "longest_wait_s": round(max(gaps, default=0.0), 1),
        "said": "" if finished else _said(ran.output),
    }
    results.add(agent.name, "faults", name, found)
    assert backend.requests, f"it asked nothing: {ran}"
    assert not sandbox.torn
    assert len(backend.requests) <= MOST_REQUESTS
    assert ran.status is not None or idle_s < HUNG_S, f"no request in {idle_s:.0f} s"


def _outcome(finished: bool, ran: Ran, idle_s: float, fault: Fault) -> str:
    if finished:
        return "finished"
    if ran.status is None:
        doing = "still retrying" if fault.times > 1 else "still at work"
        return f"{doing} after {LIMIT_S:.0f} s" if idle_s < HUNG_S else "hung"
    return "ended with an error" if ran.status else "ended, status 0"


def _said(output: str) -> str:
    """The line that looks most like an error, without colours and paths."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|fail|exceeded|retry", line, re.I)]
    line = (errors or lines or [""])[-1]
    return re.sub(r"/\S*/", "…/", line)[:160]
