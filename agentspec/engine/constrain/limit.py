"""Compiling that takes too long ends as a client's error.

An engine's compilation cannot be interrupted, but it lets other threads run: it is left behind in a
thread of its own, whose processor time is what counts. The engines' own limits on states and fuel
end it some time later. Few may be left behind at once; more are refused until those have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from agentspec.wire.errors import InvalidSchema

LIMIT_CPU_S = 2.0
LIMIT_WALL_S = 20.0
_POLL_S = 0.05
_MAX_LEFT_BEHIND = 4
_places = threading.Semaphore(_MAX_LEFT_BEHIND)
T = TypeVar("T")


def within_limit(work: Callable[[], T], param: str, limit_cpu_s: float = LIMIT_CPU_S) -> T:
    """``work()``, or ``InvalidSchema`` (naming ``param``) where it takes too long.

    What ``work`` raises is raised here.
    """
    if not _places.acquire(timeout=limit_cpu_s):
        raise InvalidSchema("Too many schemas that take long to compile; try again.", param=param)
    result: dict[str, Any] = {}
    done = threading.Event()

    def run() -> None:
        try:
            result["value"] = work()
        except BaseException as error:
            result["error"] = error
        finally:
            _places.release()
            done.set()

    thread = threading.Thread(target=run, daemon=True, name="compile")
    thread.start()
    started_s = time.monotonic()
    while not done.wait(_POLL_S):
        if _cpu_s(thread) > limit_cpu_s or time.monotonic() - started_s > LIMIT_WALL_S:
            raise InvalidSchema(
                f"The schema takes more than {limit_cpu_s:g} s to compile.", param=param
            )
    if "error" in result:
        raise result["error"]
    return result["value"]


def _cpu_s(thread: threading.Thread) -> float:
    """Processor seconds that a running thread has taken; 0 where the system does not tell."""
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # it has just ended
        return 0.0
