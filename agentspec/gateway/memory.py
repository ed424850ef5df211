"""What was answered a little while ago, for clients that refer to it instead of sending it again.

Responses knows ``previous_response_id`` and ``item_reference``. Kept in this process's memory, for
a limited time and up to a limited size, and only under the scope of the caller who got the answer.
Several workers don't share it: what one keeps, another doesn't find (``kept.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

KEEP_S = 3600.0
MAX_BYTES = 64 * 1024 * 1024
_OVERHEAD_BYTES = 200


@dataclass(frozen=True, slots=True)
class _Kept:
    value: bytes
    until_s: float

    @property
    def size(self) -> int:
        return len(self.value) + _OVERHEAD_BYTES


class Memory:
    """Bytes by (scope, name); the oldest go first.

    clock_s: a monotonic clock, seconds.
    """

    def __init__(
        self,
        clock_s: Callable[[], float],
        *,
        keep_s: float = KEEP_S,
        max_bytes: int = MAX_BYTES,
    ):
        self._clock_s = clock_s
        self._keep_s = keep_s
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self.size_bytes = 0

    def put(self, scope: str, name: str, value: bytes) -> None:
        """Keep a value. One that is too large for the memory is not kept."""
        self._drop((scope, name))
        kept = _Kept(value, self._clock_s() + self._keep_s)
        if kept.size > self._max_bytes:
            return
        self._kept[scope, name] = kept
        self.size_bytes += kept.size
        while self._kept and (self.size_bytes > self._max_bytes or self._oldest_is_over()):
            self._drop(next(iter(self._kept)))

    def get(self, scope: str, name: str) -> bytes | None:
        kept = self._kept.get((scope, name))
        if kept is None or kept.until_s <= self._clock_s():
            return None
        return kept.value

    def drop(self, scope: str, name: str) -> None:
        self._drop((scope, name))

    def _oldest_is_over(self) -> bool:
        return next(iter(self._kept.values())).until_s <= self._clock_s()

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size_bytes -= kept.size
