"""One run of an agent: a private home, a workspace, a time limit, and no process left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import script
from .agents import COMMANDS, QUIET, Agent
from .serving import KEY_ENV

START_S = 300.0


@dataclass(frozen=True, slots=True)
class Ran:
    """status: the exit status; None when the time was up. output: both streams, the last of it."""

    status: int | None
    seconds: float
    output: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """key: the endpoint's, in the environment of everything that runs here."""

    home: Path
    work: Path
    key: str | None = None

    @classmethod
    def make(cls, folder: Path, key: str | None = None) -> Sandbox:
        home, work = folder / "home", folder / "work"
        home.mkdir()
        work.mkdir()
        for name, text in script.FILES.items():
            (work / name).write_text(text)
        return cls(home, work, key)

    @property
    def edited(self) -> bool:
        return script.NEW in (self.work / "calc.py").read_text()

    @property
    def checked(self) -> bool:
        return (self.work / "ran.txt").exists()

    @property
    def torn(self) -> bool:
        return (self.work / "torn.txt").exists()

    def env(self, agent: Agent | None = None) -> dict[str, str]:
        """Nothing of the caller's environment but the path to system commands."""
        env = {
            "HOME": str(self.home),
            "USER": "user",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "SHELL": "/bin/sh",
            "PATH": f"{COMMANDS}:/usr/local/bin:/usr/bin:/bin",
        }
        secrets = {KEY_ENV: self.key} if self.key else {}
        return env | secrets | QUIET | dict(agent.env if agent else {})

    def connect(self, client: str, *options: str) -> str:
        """``agentspec connect CLIENT ...`` in this home; returns what it printed."""
        command = [sys.executable, "-m", "agentspec", "connect", client, *options]
        env = self.env() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self,
        agent: Agent,
        command: str,
        task: str,
        limit_s: float,
        asked: threading.Event | None = None,
    ) -> Ran:
        """Run the task in the workspace; everything that it started is ended.

        asked: set at the first request; the limit counts from there (a loaded machine is slow to
        start an agent).
        """
        started = time.monotonic()
        log = self.home.parent / "output.txt"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", agent.headless(command, task)],
                cwd=self.work,
                env=self.env(agent),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                until = started + START_S
                while asked and process.poll() is None and time.monotonic() < until:
                    if asked.wait(0.2):
                        break
                status = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                self._end_all(process)
        seconds = time.monotonic() - started
        return Ran(status, seconds, log.read_bytes()[-20_000:].decode("utf-8", "replace"))

    def _end_all(self, process: subprocess.Popen[bytes]) -> None:
        """The process group, and daemons that left it: told by the home that only this run has."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        mark = f"HOME={self.home}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


def version_of(agent: Agent, sandbox: Sandbox) -> str:
    """The version that the agent says it is."""
    text = subprocess.run(
        [str(COMMANDS / agent.binary), *shlex.split(agent.version)],
        env=sandbox.env(agent),
        cwd=sandbox.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout
    words = [word.strip("().,") for line in text.splitlines() for word in line.split()]
    return next(w for w in words if w[:1].isdigit() and w.count(".") >= 1)


def loopback_only() -> bool:
    """Whether nothing but this machine can be reached: the kernel knows no route."""
    return len(Path("/proc/net/route").read_text().splitlines()) <= 1
