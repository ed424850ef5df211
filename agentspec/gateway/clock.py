"""Time, passed in: wall time for what is logged, monotonic time for what is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """wall_s: Unix seconds. tick_s: monotonic seconds. entropy: that many random bytes."""

    wall_s: Callable[[], float] = time.time
    tick_s: Callable[[], float] = time.perf_counter
    entropy: Callable[[int], bytes] = os.urandom

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return int(self.wall_s() * 1000)

    def request_id(self) -> str:
        """A new one."""
        return uuid7(self.now_ms(), self.entropy(10))


def uuid7(now_ms: int, random: bytes) -> str:
    """A UUIDv7 in text form (RFC 9562, 5.7): sorts by ``now_ms``. random: 10 bytes."""
    assert len(random) == 10
    bits = now_ms << 80 | int.from_bytes(random, "big")
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
