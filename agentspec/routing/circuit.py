"""Which backends are not to be asked now: one circuit each.

closed: asked as usual. open: left alone for a while, which doubles with each further failure.
half-open: the while is over, and one request is let through to see; the others wait for what comes
of it. A connection that fails opens at once, an answer that says "later" for as long as it says,
and other failures on the third in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from agentspec.wire.errors import (
    AgentspecError,
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamUnreachable,
)

FIRST_S = 1.0
LONGEST_S = 30.0
LONGEST_TOLD_S = 300.0
IN_A_ROW = 3
_LATER = (429, 503, 529)


@dataclass(slots=True)
class _Circuit:
    """failures: in a row. opened: how often in a row it was opened. proven: the last call worked.

    until_s: 0.0 where it is closed. probing: one request is finding out.
    """

    failures: int = 0
    opened: int = 0
    until_s: float = 0.0
    probing: bool = False
    proven: bool = False
    why: str = ""


_WORKS = _Circuit(proven=True)


class Circuits:
    """Remembers what became of calls. Backends that it hasn't heard of are closed.

    clock_s: a monotonic clock, seconds. wall_s: Unix seconds, for dates that servers tell.
    """

    def __init__(self, clock_s: Callable[[], float], wall_s: Callable[[], float] = lambda: 0.0):
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._circuits: dict[str, _Circuit] = {}

    def failed(self, backend: str, error: AgentspecError) -> None:
        """A call failed, by the backend's fault; a verdict on the request is none."""
        circuit = self._circuits.setdefault(backend, _Circuit())
        circuit.failures += 1
        circuit.proven = False
        circuit.why = error.code or error.type
        told_s = self.told_s(error)
        was_probe, circuit.probing = circuit.probing, False
        broken = isinstance(error, UpstreamUnreachable | UpstreamDisconnected)
        later = getattr(error, "status", None) in _LATER
        if not (told_s or broken or later or was_probe or circuit.failures >= IN_A_ROW):
            return
        pause_s = min(FIRST_S * 2.0**circuit.opened, LONGEST_S)
        circuit.opened += 1
        until_s = self._clock_s() + max(pause_s, told_s)
        circuit.until_s = max(circuit.until_s, until_s)

    def told_s(self, error: AgentspecError) -> float:
        """How long the backend asks to be left alone, seconds; 0.0 where it doesn't say."""
        headers = error.headers if isinstance(error, UpstreamFailed) else {}
        return retry_after_s(headers, self._wall_s())

    def succeeded(self, backend: str) -> None:
        """A call was answered."""
        circuit = self._circuits.get(backend)
        if circuit is None or circuit != _WORKS:
            self._circuits[backend] = _Circuit(proven=True)

    def enter(self, backend: str) -> None:
        """A call begins. Where the circuit is half-open it is the one that finds out."""
        circuit = self._circuits.get(backend)
        if circuit is not None and circuit.until_s and circuit.until_s <= self._clock_s():
            circuit.probing = True

    def left(self, backend: str) -> None:
        """A call ended without telling anything of the backend: its client left."""
        circuit = self._circuits.get(backend)
        if circuit is not None:
            circuit.probing = False

    def ready(self, backend: str) -> bool:
        """Whether a call may go there now: closed, or half-open and nobody is finding out."""
        circuit = self._circuits.get(backend)
        if circuit is None or not circuit.until_s:
            return True
        return not circuit.probing and circuit.until_s <= self._clock_s()

    def proven(self, backend: str) -> bool:
        """Whether the last call there worked."""
        circuit = self._circuits.get(backend)
        return circuit is not None and circuit.proven

    def remaining_s(self, backend: str) -> float:
        """Seconds until the backend is tried again; 0.0 when it may be tried now."""
        circuit = self._circuits.get(backend)
        return max(0.0, circuit.until_s - self._clock_s()) if circuit is not None else 0.0

    def why(self, backend: str) -> str:
        """Why a call may not go there now, in words."""
        circuit = self._circuits[backend]
        if circuit.probing:
            return f"another request is finding out whether it is back ({circuit.why})"
        return f"cooling down for {self.remaining_s(backend):.1f} s ({circuit.why})"


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float:
    """``Retry-After``, in seconds or as a date (RFC 9110, 10.2.3), as seconds from now; 0.0 where
    it isn't there or can't be read. At most ``LONGEST_TOLD_S``."""
    text = next((v for k, v in headers.items() if k.lower() == "retry-after"), "").strip()
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        seconds = when.replace(tzinfo=when.tzinfo or UTC).timestamp() - now_s
        if seconds <= 0 or now_s <= 0:
            return 0.0
    return min(seconds, LONGEST_TOLD_S) if seconds > 0 else 0.0
