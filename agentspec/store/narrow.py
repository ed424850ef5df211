"""The newest part of a window that holds no more requests than may be read one by one."""

from __future__ import annotations

from sqlalchemy import Connection

from .grouping import SCANNED
from .rebuild import floors
from .rollup_schema import HOUR_MS
from .slices import Slice, sums
from .window import Window


def narrowed(connection: Connection, window: Window, most: int = SCANNED) -> Window:
    """The window itself where it has few enough; else its newest whole hours that do, the last one
    at least."""
    found = sums(
        connection, Slice(window, {}, floors(connection)), ("requests",), bucket_ms=HOUR_MS
    )
    counted = 0
    since_ms = window.until_ms
    for (start_ms,), one in sorted(found.items(), reverse=True):
        counted += one["requests"]
        if counted > most and since_ms < window.until_ms:
            return Window(max(since_ms, window.since_ms), window.until_ms)
        since_ms = start_ms
    return window
