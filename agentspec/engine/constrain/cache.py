"""Compiled constraints by content: the newest used ones, within a number and a sum of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from .limit import TooCostly

if TYPE_CHECKING:
    from .factory import Compiled

MAX_BYTES = 1 << 30
_MAX_REFUSALS = 256


class Cache:
    """Thread-safe. A key is of fixed size, so that a large schema isn't kept for its name."""

    def __init__(self, most: int, most_bytes: int = MAX_BYTES):
        self._most, self._most_bytes = most, most_bytes
        self._held: OrderedDict[bytes, Compiled] = OrderedDict()
        self._refused: OrderedDict[bytes, TooCostly] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Compiled | None:
        """What was put, or None. Raises ``TooCostly`` where that is known of it."""
        with self._lock:
            if refused := self._refused.get(key):
                raise refused.again()
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: bytes, compiled: Compiled) -> None:
        """Keep it, and let those go that were not used for longest."""
        with self._lock:
            self._held[key] = compiled
            self._bytes += compiled.size_bytes
            while self._held and (len(self._held) > self._most or self._bytes > self._most_bytes):
                _, gone = self._held.popitem(last=False)
                self._bytes -= gone.size_bytes

    def refuse(self, key: bytes, refused: TooCostly) -> None:
        """Remember that building it takes too much: it isn't tried again."""
        with self._lock:
            self._refused[key] = refused.again()
            while len(self._refused) > _MAX_REFUSALS:
                self._refused.popitem(last=False)
