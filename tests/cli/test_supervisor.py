"""Children that die, refuse, hang or are left behind. The children are small scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agentspec.logs import JsonLines
from agentspec.supervisor import processes
from agentspec.supervisor.processes import Child, ChildRefused, ChildSpec, Supervisor

# Tells its pid in FILE, one a line; then waits.
WAITS = "import os,sys,time; open(sys.argv[1],'a').write(f'{os.getpid()}\\n'); time.sleep(300)"
# The same, but SIGTERM only makes it write.
DEAF = "import signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
# On SIGTERM it writes its name into FILE and ends.
LEAVES_WORD = """
import os, signal, sys, time
def leave(*_):
    open(sys.argv[1], "a").write(sys.argv[2] + "\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
open(sys.argv[1] + "." + sys.argv[2], "w").close()
time.sleep(300)
"""
# Once the file GATE is there it accepts connections on FD and tells its pid.
ANSWERS = """
import os, socket, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
listener = socket.socket(fileno=int(sys.argv[1]))
listener.setblocking(True)
while True:
    connection, _ = listener.accept()
    connection.sendall(str(os.getpid()).encode())
    connection.close()
"""


def spec(name: str, program: str, *args: object, **more: object) -> ChildSpec:
    return ChildSpec(name, [sys.executable, "-c", program, *map(str, args)], **more)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.asynccontextmanager
async def supervised(*specs: ChildSpec) -> AsyncIterator[list[str]]:
    """Run a supervisor around the block; yields what it says. Nothing may be left afterwards."""
    said: list[str] = []
    ended: list[int] = []
    supervisor = Supervisor(specs, said.append, ended.append)
    task = asyncio.create_task(supervisor.run())
    try:
        yield said
    finally:
        supervisor.stop()
        await asyncio.wait_for(task, 20)
        assert ended and not any(alive(pid) for pid in ended)


async def test_a_killed_child_is_started_again(tmp_path):
    pids = tmp_path / "pids"
    async with supervised(spec("worker", WAITS, pids)) as said:
        for count in (1, 2, 3):
            await until(lambda count=count: len(lines(pids)) == count)
            if count < 3:
                os.kill(int(lines(pids)[-1]), signal.SIGKILL)
    assert said == ["worker was killed by SIGKILL; starting it again"] * 2


async def test_connections_wait_while_a_child_restarts(tmp_path):
    gate = tmp_path / "gate"
    gate.touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def ask() -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answer = await reader.read()
            writer.close()
            return int(answer)

        fd = listener.fileno()
        async with supervised(spec("worker", ANSWERS, fd, gate, fds=(fd,))):
            first = await ask()
            gate.unlink()
            os.kill(first, signal.SIGKILL)
            await until(lambda: not alive(first))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            gate.touch()
            second = int(await asyncio.wait_for(reader.read(), 20))
            writer.close()
    assert second != first


async def test_the_pause_grows_and_is_reset_by_health(monkeypatch):
    pauses: list[float] = []
    now_s = [0.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now_s[0])

    class Watched(Child):
        async def _run_once(self) -> int:
            self.starts += 1
            now_s[0] += 60.0 if self.starts == 9 else 1.0
            return 1

        async def _pause(self, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 10:
                self._stopping.set()

    await Watched(spec("worker", ""), lambda line: None, lambda pid: None).run()
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 0.0, 0.1]


async def test_a_child_that_refuses_at_its_first_start_ends_everything(tmp_path):
    pids = tmp_path / "pids"
    good = spec("good", WAITS, pids)
    wait_then_refuse = (
        "import os,sys,time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nsys.exit(2)"
    )
    supervisor = Supervisor([good, spec("bad", wait_then_refuse, pids)], lambda line: None)
    with pytest.raises(ChildRefused, match="bad"):
        await asyncio.wait_for(supervisor.run(), 20)
    assert not alive(int(lines(pids)[0]))


async def test_children_are_stopped_from_the_highest_stage_down(tmp_path):
    words = tmp_path / "words"
    specs = [spec(f"s{n}", LEAVES_WORD, words, f"s{n}", stage=n) for n in (0, 2, 1)]
    async with supervised(*specs):
        await until(lambda: all(Path(f"{words}.s{n}").exists() for n in range(3)))
    assert lines(words) == ["s2", "s1", "s0"]


async def test_a_child_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.1)
    pids = tmp_path / "pids"
    async with supervised(spec("deaf", DEAF, pids)):
        await until(lambda: len(lines(pids)) == 1)
    assert not alive(int(lines(pids)[0]))


async def test_what_a_dead_child_started_ends_with_it(tmp_path):
    """A grandchild holds the child's output open: it must neither hide the death nor stay."""
    pids = tmp_path / "pids"
    program = (
        f"import subprocess,sys; subprocess.Popen([sys.executable,'-c',{WAITS!r},sys.argv[1]]);"
    )
    async with supervised(spec("parent", program + WAITS, pids)) as said:
        await until(lambda: len(lines(pids)) == 2)
        first = [int(line) for line in lines(pids)]
        children = {pid: int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in first}
        parent = next(pid for pid in first if children[pid] == os.getpid())
        os.kill(parent, signal.SIGKILL)
        await until(lambda: len(lines(pids)) == 4 and not any(map(alive, first)))
    assert said == ["parent was killed by SIGKILL; starting it again"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
async def test_no_child_outlives_a_killed_supervisor(tmp_path):
    pids = tmp_path / "pids"
    program = f"""
import asyncio, sys
from agentspec.supervisor.processes import ChildSpec, Supervisor
child = ChildSpec("worker", [sys.executable, "-c", {WAITS!r}, {str(pids)!r}])
asyncio.run(Supervisor([child, child], print).run())
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    await until(lambda: len(lines(pids)) == 2)
    parent.kill()
    parent.wait()
    await until(lambda: not any(alive(int(pid)) for pid in lines(pids)))


def test_output_comes_under_the_childs_name():
    program = """
import asyncio, sys
from agentspec.supervisor.processes import ChildSpec, Supervisor
speak = "import sys; sys.stdout.write('one\\\\rtwo\\\\n'); sys.stderr.write('three'); sys.exit(2)"
asyncio.run(Supervisor([ChildSpec("engine", [sys.executable, "-c", speak])], print).run())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if line.startswith("engine   | ")]
    assert sorted(told) == ["engine   | one", "engine   | three", "engine   | two"]
    assert "ChildRefused" in done.stderr


def test_a_line_of_json_stays_one_and_names_its_process():
    record = logging.LogRecord("n", logging.INFO, "f", 1, "hello", None, None)
    line = JsonLines().format(record).encode()
    told = json.loads(processes._signed(line, "gateway0"))
    assert (told["process"], told["message"]) == ("gateway0", "hello")
    assert processes._signed(b'{"ts": cut', "engine") == b'engine   | {"ts": cut\n'
