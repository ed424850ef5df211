"""Short pauses of Python's garbage collector, which stops every stream of a process at once.

A full collection looks at all objects: some 100,000 of a process that only just started take 90 ms
on a laptop. Nearly all of them are modules and stay for good, so they are taken out of its sight;
what is let go by its reference count, as all but cycles are, is freed as ever.
"""

from __future__ import annotations

import gc
import time
from types import TracebackType

LONG_MS = 10.0


class ShortPauses:
    """Inside the block: what there is at its start is not looked at again, nor what was left after
    a full collection that took ``LONG_MS`` or more (a library imported by the first request)."""

    def __init__(self) -> None:
        self._began_s = 0.0

    def __enter__(self) -> ShortPauses:
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._watch)
        gc.unfreeze()

    def _watch(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began_s = time.perf_counter()
        elif (time.perf_counter() - self._began_s) * 1000 >= LONG_MS:
            gc.freeze()
