"""The process behind ``trial.Trial``: it holds a factory, and forks for each spec it is to build.

In on standard input, each with its length before it: (sys.path, the factory's arguments, limits),
then specs. Out, a line each: ``{ended: built | refused | time | memory, ..}``. It has one thread,
so that forking is safe, and ends with its input.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import struct
import sys
from typing import Any

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""Set before the libraries are loaded, which would start threads of their own."""
_TIME_SIGNALS = (signal.SIGPROF, signal.SIGALRM)


def _read(stream: Any) -> Any:
    """The next message. Raises ``EOFError``."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))


def _limited(limits: Any) -> None:
    """Hold this process to its limits from now on; the kernel ends it."""
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as statm:
            taken = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + limits.bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)


def _build(factory: Any, spec: Any, limits: Any, answer: int) -> None:
    """In the fork: build, and write how it ended."""
    from agentspec.wire.errors import InvalidRequest, InvalidSchema

    before = _resident()
    try:
        _limited(limits)
        factory.build(spec)
        told: dict[str, Any] = {"ended": "built", "bytes": max(_resident() - before, 0)}
    except InvalidRequest as error:
        told = {
            "ended": "refused",
            "schema": isinstance(error, InvalidSchema),
            "message": error.message,
            "param": error.param,
            "code": error.code,
        }
    except (MemoryError, RecursionError):
        told = {"ended": "memory"}
    os.write(answer, json.dumps(told).encode())


def _resident() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tried(factory: Any, spec: Any, limits: Any) -> bytes:
    """Fork, build there, and say how it ended. A build that dies unasked took too much memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            _build(factory, spec, limits, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if told:
        return told
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in _TIME_SIGNALS
    ended = "time" if late else "memory"
    return json.dumps({"ended": ended}).encode()


def main() -> None:
    for name in _THREADS:
        os.putenv(name, "1")
    requests = sys.stdin.buffer
    path, arguments, limits = _read(requests)
    sys.path[:] = path
    from agentspec.engine.constrain.factory import ConstraintFactory

    factory = ConstraintFactory(**arguments)
    while True:
        try:
            spec = _read(requests)
        except EOFError:
            return
        sys.stdout.buffer.write(_tried(factory, spec, limits) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
