"""Processes that a bench starts on loopback: started, waited for, measured, and always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

from agentspec.supervisor.processes import die_with


class ProcessFailed(ChildProcessError):
    """A process of the bench ended or did not answer; the message ends with what it wrote."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def started(command: Seq[str], folder: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process group of its own until the block ends; its output is kept.

    It does not outlive a bench that is killed (on Linux).
    """
    log = Path(folder) / f"{Path(command[0]).name}-{free_port()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )
        process.args = [*command, str(log)]
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def talk(command: Seq[str]) -> Iterator[Callable[[str], str]]:
    """Run a command that answers a line for a line; the block gets the function that asks.

    It raises ``ProcessFailed`` with the command's last words when there is no answer.
    """
    with (
        TemporaryFile("w+") as log,
        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True) as process,
    ):
        to, back = process.stdin, process.stdout
        assert to and back

        def say(line: str) -> str:
            try:
                to.write(line + "\n")
                to.flush()
                answer = back.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:
                log.seek(0)
                words = log.read()[-500:].strip()
                raise ProcessFailed(f"{Path(command[0]).name} ended early: {words}")
            return answer

        try:
            yield say
        finally:
            process.kill()


def python(arguments: Seq[str], folder: str | Path):
    return started([sys.executable, *arguments], folder)


def agentspec(arguments: Seq[str], folder: str | Path):
    return started([str(Path(sys.executable).with_name("agentspec")), *arguments], folder)


@contextmanager
def wait_http(
    url: str,
    process: subprocess.Popen[bytes] | None = None,
    limit_s: float = 120,
    every_s: float = 0.1,
) -> Iterator[None]:
    """Enter the block once ``url`` answers 200. Raises ``ProcessFailed``."""
    end_s = time.monotonic() + limit_s
    while True:
        if _answers(url):
            break
        dead = process is not None and process.poll() is not None
        if dead or time.monotonic() > end_s:
            raise ProcessFailed(
                f"{url}: {'the process ended' if dead else 'no answer'}\n{_log(process)}"
            )
        time.sleep(every_s)
    yield


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _log(process: subprocess.Popen[bytes] | None) -> str:
    if process is None or not isinstance(process.args, list):
        return ""
    return Path(str(process.args[-1])).read_text(errors="replace")[-2000:]


def cpu_seconds(parent: int) -> float:
    """Processor time so far of a process and its living descendants (Linux /proc).

    Added up from the scheduler's nanoseconds a thread: the clock ticks of ``stat`` (10 ms) are
    coarser than the requests that are measured with it. Threads that have ended are left out.
    """
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(folder.name)] = int(fields[1])
    family, grown = {parent}, True
    while grown:
        more = {pid for pid, of in parents.items() if of in family} - family
        family |= more
        grown = bool(more)
    total_ns = 0
    for pid in family:
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                total_ns += int(thread.read_text().split()[0])
    return total_ns / 1e9
