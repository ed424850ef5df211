"""Keeps the processes of one installation running: engine, gateway workers, ledger writer.

The supervisor binds the ports and hands the sockets down, so that a port survives its process:
connections wait in the backlog while a child restarts. A child that dies is started again, at once
the first time, then after a growing pause. No child outlives the supervisor, not even when that is
killed (Linux: PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentspec.logs import JSON_LINE

HEALTHY_S = 10.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
GRACE_S = 15.0
LAST_WORDS_S = 1.0
BAD_USAGE = 2
_PR_SET_PDEATHSIG = 1

Say = Callable[[str], None]


class ChildRefused(RuntimeError):
    """A child ended at its first start because it cannot be used as configured."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running. stage: children of the highest stage are stopped first."""

    name: str
    command: Sequence[str]
    fds: tuple[int, ...] = ()
    stage: int = 0


class Child:
    """One supervised process, restarted until it is told to stop."""

    def __init__(self, spec: ChildSpec, say: Say, died: Callable[[int], None]):
        self.spec = spec
        self.starts = 0
        self._say = say
        self._died = died
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Start, wait, start again. Returns after ``stop``; raises ``ChildRefused``."""
        pause_s = 0.0
        while not self._stopping.is_set():
            began_s = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if code == BAD_USAGE and self.starts == 1:
                raise ChildRefused(f"the {self.spec.name} cannot run; its message stands above")
            if time.monotonic() - began_s >= HEALTHY_S:
                pause_s = 0.0
            self._say(f"{self.spec.name} {_how_it_ended(code)}; starting it again")
            await self._pause(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)

    async def _run_once(self) -> int:
        self.starts += 1
        parent = os.getpid()
        # A pipe of our own: a grandchild that holds it open must not hide the child's death.
        read_fd, write_fd = os.pipe()
        copying = asyncio.create_task(_copy_lines(read_fd, self.spec.name))
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                pass_fds=self.spec.fds,
                # A Ctrl-C at the terminal reaches only the supervisor, which then stops in order.
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        finally:
            os.close(write_fd)
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        code = await process.wait()
        _kill_group(process.pid)
        await asyncio.wait({copying}, timeout=LAST_WORDS_S)
        copying.cancel()
        self._died(process.pid)
        return code

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def stop(self) -> None:
        """Ask the process to end, and don't start it again."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, and don't start it again."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Supervisor:
    """Runs children until SIGTERM or SIGINT comes (a second one kills), or one refuses to run.

    say: told of every start, death and restart, one line each. died: called with the pid of each
    process that ended.
    """

    def __init__(
        self, specs: Sequence[ChildSpec], say: Say, died: Callable[[int], None] = lambda pid: None
    ):
        self._children = [Child(spec, say, died) for spec in specs]
        self._signals = 0
        self._wake = asyncio.Event()

    async def run(self, *, meanwhile: Callable[[], asyncio.Future[None]] | None = None) -> None:
        """Supervise. meanwhile: started beside the children, cancelled at the end.

        Raises ``ChildRefused``, after every other child has been stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        tasks = {asyncio.create_task(child.run()): child for child in self._children}
        beside = meanwhile() if meanwhile else None
        wake = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({wake, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wake.cancel()
            if beside is not None:
                beside.cancel()
            await self._stop_in_order(tasks)
        for task in tasks:
            task.result()

    def stop(self) -> None:
        """What SIGTERM does."""
        self._on_signal()

    def _on_signal(self) -> None:
        self._signals += 1
        self._wake.set()
        if self._signals > 1:
            for child in self._children:
                child.kill()

    async def _stop_in_order(self, tasks: dict[asyncio.Task[None], Child]) -> None:
        """The gateway first, so that running answers find an engine; the writer last."""
        for stage in sorted({child.spec.stage for child in self._children}, reverse=True):
            group = {task: child for task, child in tasks.items() if child.spec.stage == stage}
            for child in group.values():
                child.stop()
            _, late = await asyncio.wait(group, timeout=GRACE_S)
            for task in late:
                group[task].kill()
            await asyncio.wait(group)


def die_with(parent: int) -> None:
    """Runs in the child before its program: it shall not outlive ``parent``."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _kill_group(leader: int) -> None:
    """End what a dead child has left running."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


async def _copy_lines(fd: int, name: str) -> None:
    """A child's output to our standard error, each line under the child's name. Closes ``fd``."""
    stream = asyncio.StreamReader()
    pipe = os.fdopen(fd, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    pending = b""
    try:
        while piece := await stream.read(65536):
            # A progress bar redraws its line with carriage returns: each is a line here.
            *lines, pending = (pending + piece.replace(b"\r", b"\n")).split(b"\n")
            _write(b"".join(_signed(line, name) for line in lines if line))
        if pending:
            _write(_signed(pending, name))
    finally:
        transport.close()


def _signed(line: bytes, name: str) -> bytes:
    """A child's line with its name: in front, or as a field where the line is a log's JSON."""
    if line.startswith(JSON_LINE) and line.endswith(b"}"):
        return b'{"process": "' + name.encode() + b'", ' + line[1:] + b"\n"
    return f"{name:<9}| ".encode() + line + b"\n"


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads our standard error any more
        os.write(sys.stderr.fileno(), data)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
