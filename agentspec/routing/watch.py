"""Looks at backends in the background: are they there, how busy are they, how large their windows.

Decisions take what was seen last and wait for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentspec.backends.base import Backend
from agentspec.backends.load import Load, TellsLoad
from agentspec.wire.errors import AgentspecError

log = logging.getLogger(__name__)
WINDOWS_EVERY = 30
"""Looks between two at the model lists: windows don't change while a server runs."""


@dataclass(slots=True)
class Seen:
    """What was seen of a backend last. begun: calls made since, which its load doesn't show yet.

    windows: context tokens by the server's own names of its models.
    """

    healthy: bool = True
    load: Load | None = None
    begun: int = 0
    windows: dict[str, int] = field(default_factory=dict)


class Watch:
    """Of the backends that there is a choice between; of none, it does nothing."""

    def __init__(self, backends: Mapping[str, Backend], every_s: float):
        self._backends = backends
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self.seen = {name: Seen() for name in backends}

    def load(self, name: str, in_flight: int) -> float:
        """Requests at the backend now: those that it told of and those begun since, or at least
        this process's own."""
        seen = self.seen.get(name)
        if seen is None or seen.load is None:
            return float(in_flight)
        return max(float(in_flight), seen.load.running + seen.load.waiting + seen.begun)

    def begun(self, name: str) -> None:
        """A call is made."""
        if name in self.seen:
            self.seen[name].begun += 1

    def healthy(self, name: str) -> bool:
        seen = self.seen.get(name)
        return seen is None or seen.healthy

    def window(self, name: str, model: str) -> int | None:
        """Context tokens of a model at a backend; where it serves one model, of that."""
        windows = self.seen[name].windows if name in self.seen else {}
        return windows.get(model) or (next(iter(windows.values())) if len(windows) == 1 else None)

    def start(self) -> None:
        """Begin to look, on the running loop."""
        if self._backends and self._task is None:
            self._task = asyncio.create_task(self._keep_looking())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _keep_looking(self) -> None:
        number = 0
        while True:
            await self.look(windows=number % WINDOWS_EVERY == 0)
            number += 1
            await asyncio.sleep(self._every_s)

    async def look(self, *, windows: bool = True) -> None:
        """Look once, at all at the same time. Raises nothing."""
        names = list(self._backends)
        await asyncio.gather(*(self._look_at(name, windows) for name in names))

    async def _look_at(self, name: str, windows: bool) -> None:
        backend, seen = self._backends[name], self.seen[name]
        try:
            if isinstance(backend, TellsLoad):
                await self._look_closely(name, backend, seen)
            if windows and seen.healthy:
                seen.windows = {
                    card.id: card.context_length
                    for card in await backend.models()
                    if card.context_length
                }
        except AgentspecError as error:
            log.debug("backend %s tells nothing: %s", name, error.message)
        except Exception:
            log.exception("backend %s could not be looked at", name)

    async def _look_closely(self, name: str, backend: TellsLoad, seen: Seen) -> None:
        """A server of one's own: is it there, and how busy. A vendor's is not asked all the time;
        that it is away, calls find out."""
        healthy = await self._backends[name].health()
        if healthy != seen.healthy:
            log.warning("backend %s is %s", name, "back" if healthy else "away")
        seen.healthy, seen.load = healthy, None
        if healthy:
            seen.load, seen.begun = await backend.load(), 0
