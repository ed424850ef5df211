"""Windows of time in which the whole engine does without speculation: the unbiased control arm.

A request without drafts beside others with drafts shares their passes, so that it tells nothing of
an engine that doesn't speculate. Hence whole windows are switched ("switchback"): time is cut into
windows of equal length from 1970 on, and each is drawn by itself, by a hash of the seed and its
number. So the schedule is fixed ahead, for every process that knows seed, share and length. Drafts
never change a text, and neither do these windows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings

_DRAW_BYTES = 8


class ControlWindows:
    """The schedule. clock: nanoseconds since 1970, of the clock that all processes share."""

    def __init__(
        self,
        share: float,
        window_s: float,
        seed: int,
        *,
        clock: Callable[[], int] = time.time_ns,
    ):
        assert 0 <= share <= 1 and window_s > 0, "the settings are checked"
        self.clock = clock
        self._window_ns = round(window_s * 1e9)
        self._limit = round(share * 2 ** (8 * _DRAW_BYTES))
        self._seed = seed
        self._known: tuple[int, bool] = (-1, False)

    @classmethod
    def of(cls, settings: EngineSettings) -> ControlWindows | None:
        """As the settings have it; None where there is nothing to switch."""
        if settings.control_share == 0 or not (settings.draft_sources or settings.drafts != []):
            return None
        return cls(settings.control_share, settings.control_window_s, settings.control_seed)

    def window_of(self, at_ns: int) -> int:
        """The number of the window that a time lies in."""
        return at_ns // self._window_ns

    def is_off(self, window: int) -> bool:
        """Whether the engine does without speculation in the window of that number."""
        known, off = self._known
        if known != window:
            key = f"{self._seed}:{window}".encode()
            draw = hashlib.blake2b(key, digest_size=_DRAW_BYTES).digest()
            off = int.from_bytes(draw, "big") < self._limit
            self._known = (window, off)
        return off

    def off_now(self) -> bool:
        return self.is_off(self.window_of(self.clock()))

    def arm(self, since_ns: int) -> str:
        """The windows from a time until now: "on" or "off" if all are, else "mixed"."""
        windows = range(self.window_of(since_ns), self.window_of(self.clock()) + 1)
        found = {self.is_off(window) for window in windows}
        return "mixed" if len(found) > 1 else "off" if True in found else "on"
