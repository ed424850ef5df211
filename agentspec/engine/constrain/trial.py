"""Grammars that may take too long are built in a process first that can be ended, memory and all.

An engine's compilation cannot be interrupted, and what a thread has allocated cannot be counted. So
what looks heavy (``weight``) is built by a fork of a small process (``trial_process.py``) under
limits that the kernel holds: processor time, wall time, address space. Only what ends there within
them is built here as well, which takes as long once more.
"""

from __future__ import annotations

import json
import logging
import pickle
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.toolcall.choice import OutputSpec
from agentspec.wire.errors import InvalidRequest, InvalidSchema, Overloaded

from .limit import TooCostly

LIMIT_CPU_S = 1.0
LIMIT_WALL_S = 10.0
LIMIT_BYTES = 512 * 1024 * 1024
"""Beyond what the process that is forked takes."""
_WAIT_S = 4.0
_PROCESS = Path(__file__).with_name("trial_process.py")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one build: seconds of processor and wall time, bytes of address space."""

    cpu_s: float = LIMIT_CPU_S
    wall_s: float = LIMIT_WALL_S
    bytes: int = LIMIT_BYTES


class Trial:
    """The process, started at the first use and again where it has died. Thread-safe: one after
    the other. factory: keyword arguments of the ``ConstraintFactory`` that builds in it.
    """

    def __init__(self, factory: dict[str, Any], limits: Limits | None = None):
        self._factory = factory
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._ending: Callable[[], object] = _nothing

    def check(self, spec: OutputSpec, param: str) -> int:
        """Bytes that building ``spec`` took. Raises ``TooCostly`` (naming ``param``) where it
        takes too much, what building it raises, and ``Overloaded`` where too many wait.
        """
        if not self._turn.acquire(timeout=_WAIT_S):
            raise Overloaded("Too many schemas that take long to compile; try again.")
        try:
            told = self._asked(spec)
        finally:
            self._turn.release()
        limits = self._limits
        match told["ended"]:
            case "built":
                return told["bytes"]
            case "refused":
                kind = InvalidSchema if told["schema"] else InvalidRequest
                raise kind(told["message"], param=told["param"], code=told["code"])
            case "time":
                reason = f"takes more than {limits.cpu_s:g} s to compile"
            case _:
                reason = f"takes more than {limits.bytes >> 20} MiB to compile"
        raise TooCostly(f"The schema {reason}.", param=param)

    def warm(self) -> None:
        """Start the process, should it not run; returns before it is ready."""
        with self._turn:
            if self._process is None:
                self._start()

    def close(self) -> None:
        """End the process; the next ``check`` starts another."""
        self._process = None
        self._ending()

    def _asked(self, spec: OutputSpec) -> dict[str, Any]:
        """The process's answer. One that has died since is started once more."""
        for again in (True, False):
            try:
                if self._process is None:
                    self._start()
                self._send(spec)
                return self._answer()
            except OSError as error:
                self.close()
                if not again:
                    _log.error("schemas cannot be tried before they are compiled: %s", error)
        raise Overloaded("Schemas that take long cannot be compiled now.")

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._ending = weakref.finalize(self, _end, self._process)
        self._send((sys.path, self._factory, self._limits))

    def _send(self, message: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        data = pickle.dumps(message)
        self._process.stdin.write(struct.pack("<Q", len(data)) + data)
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError("the process has ended")
        return json.loads(line)


def _nothing() -> None: ...


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
