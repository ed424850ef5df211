"""Processes of a bench end with it, also when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentspec.bench.processes import cpu_seconds

PARENT = """
import sys
from agentspec.bench.processes import started
with started([sys.executable, "-c", "import time; time.sleep(600)"], sys.argv[1]) as child:
    print(child.pid, flush=True)
    input()
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ties a child to its parent")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_a_child_does_not_outlive_its_bench(tmp_path: Path, end: signal.Signals | None):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as parent:
        assert parent.stdin and parent.stdout
        child = int(parent.stdout.readline())
        assert alive(child)
        if end is None:
            parent.stdin.write(b"\n")
            parent.stdin.flush()
        else:
            os.kill(parent.pid, end)
        parent.wait(60)
    until = time.monotonic() + 60
    while alive(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(child)


def test_processor_time_is_finer_than_a_clock_tick_and_counts_children():
    before, own = cpu_seconds(os.getpid()), time.process_time()
    until = own + 0.004  # less than a tick of 10 ms
    while time.process_time() < until:
        pass
    spent, alone = cpu_seconds(os.getpid()) - before, time.process_time() - own
    assert 0.003 < spent < alone + 0.5
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=-1, stdout=-1) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()
        assert cpu_seconds(os.getpid()) - before > 0.3
        child.stdin.write(b"\n")
        child.stdin.flush()
