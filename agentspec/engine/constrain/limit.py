"""Compiling that takes too long ends as a client's error.

What looks heavy has been built in a process that can be ended before (``trial``), so what comes
here is short. Should it not be, the thread it runs in is left behind: a call into the engine cannot
be interrupted, but it is the thread's last one. Its processor time is what counts. Few may be left
behind at once; more are refused until those have ended.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from agentspec.wire.errors import InvalidSchema, Overloaded

LIMIT_CPU_S = 2.0
LIMIT_WALL_S = 20.0
_POLL_S = 0.05
_MAX_LEFT_BEHIND = 4
_left_behind: list[threading.Thread] = []
_lock = threading.Lock()
T = TypeVar("T")


class TooCostly(InvalidSchema):
    """A schema whose grammar takes too much time or memory to build. param is always given."""

    def again(self) -> TooCostly:
        """The same error, to be raised once more."""
        return TooCostly(self.message, param=self.param)


class _Over(BaseException):
    """Raised in a thread whose work is of no use any more."""


def within_limit(work: Callable[[], T], param: str, limit_cpu_s: float = LIMIT_CPU_S) -> T:
    """``work()``, or ``TooCostly`` (naming ``param``) where it takes too long; ``Overloaded`` where
    too much that did is not at its end yet. What ``work`` raises is raised here.
    """
    with _lock:
        _left_behind[:] = [thread for thread in _left_behind if thread.is_alive()]
        if len(_left_behind) >= _MAX_LEFT_BEHIND:
            raise Overloaded("Too many schemas that take long to compile; try again.")
    result: dict[str, Any] = {}

    def run() -> None:
        with suppress(_Over):
            try:
                result["value"] = work()
            except Exception as error:
                result["error"] = error

    thread = threading.Thread(target=run, daemon=True, name="compile")
    thread.start()
    started_s = time.monotonic()
    while thread.join(_POLL_S) or thread.is_alive():
        if _cpu_s(thread) > limit_cpu_s or time.monotonic() - started_s > LIMIT_WALL_S:
            _leave(thread)
            raise TooCostly(
                f"The schema takes more than {limit_cpu_s:g} s to compile.", param=param
            )
    if "error" in result:
        raise result["error"]
    return result["value"]


def _leave(thread: threading.Thread) -> None:
    """Have the thread's Python code end at its next instruction."""
    with _lock:
        _left_behind.append(thread)
    assert thread.ident is not None
    over = ctypes.py_object(_Over)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), over)


def _cpu_s(thread: threading.Thread) -> float:
    """Processor seconds that a running thread has taken; 0 where the system does not tell."""
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # it has just ended
        return 0.0
