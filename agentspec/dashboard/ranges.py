"""The stretches of time a page can show, and how finely its charts cut them."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.store.window import Window

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Range:
    """``buckets`` times ``bucket_ms`` up to now, labelled at multiples of ``tick`` buckets."""

    name: str
    title: str
    bucket_title: str
    bucket_ms: int
    buckets: int
    tick: int

    def window(self, now_ms: int) -> Window:
        """The last ``buckets`` whole buckets, the running one included."""
        until_ms = now_ms - now_ms % self.bucket_ms + self.bucket_ms
        return Window(until_ms - self.buckets * self.bucket_ms, until_ms)


RANGES = (
    Range("1h", "last hour", "minute", _MINUTE_MS, 60, 15),
    Range("24h", "last 24 hours", "half hour", 30 * _MINUTE_MS, 48, 12),
    Range("7d", "last 7 days", "4 hours", 4 * _HOUR_MS, 42, 6),
    Range("30d", "last 30 days", "day", _DAY_MS, 30, 7),
)
DEFAULT = RANGES[1]


def parse_range(name: str) -> Range:
    """The range of that name; the default for any other."""
    return next((r for r in RANGES if r.name == name), DEFAULT)
