"""Which backends were found unreachable a moment ago."""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 1.0
LONGEST_S = 30.0


class Cooldown:
    """Remembers connection failures. Each further one doubles the pause, one success ends it.

    clock_s: a monotonic clock, seconds.
    """

    def __init__(self, clock_s: Callable[[], float]):
        self._clock_s = clock_s
        self._failures: dict[str, int] = {}
        self._until_s: dict[str, float] = {}

    def failed(self, backend: str) -> None:
        count = self._failures.get(backend, 0)
        self._failures[backend] = count + 1
        pause_s = min(FIRST_S * 2.0**count, LONGEST_S)
        self._until_s[backend] = self._clock_s() + pause_s

    def succeeded(self, backend: str) -> None:
        self._failures.pop(backend, None)
        self._until_s.pop(backend, None)

    def remaining_s(self, backend: str) -> float:
        """Seconds until the backend is tried again; 0.0 when it may be tried now."""
        return max(0.0, self._until_s.get(backend, 0.0) - self._clock_s())
