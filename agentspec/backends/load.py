"""How busy a server is, as it tells itself: looked at in the background, never by a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Load:
    """running, waiting: requests. kv_used: share of the K/V memory; accepted_length: tokens a step
    lately, over all requests. None where the server doesn't tell."""

    running: float = 0.0
    waiting: float = 0.0
    kv_used: float | None = None
    accepted_length: float | None = None


@runtime_checkable
class TellsLoad(Protocol):
    """A backend that says how busy it is."""

    async def load(self) -> Load | None:
        """None where it doesn't tell now. Raises ``AgentspecError`` where it can't be reached."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """The samples of a server's Prometheus page that make a ``Load``; each is summed over labels.

    used, of: share of memory is used / (used + of), or used alone. accepted, drafts: counters of
    accepted tokens and of steps. length: a gauge of the accepted length itself.
    """

    running: str
    waiting: str
    used: str = ""
    accepted: str = ""
    drafts: str = ""
    length: str = ""


class PageReader:
    """Reads one server's page, again and again: a length is told of what came since the last."""

    def __init__(self, names: Names):
        self._names = names
        self._before: tuple[float, float] | None = None

    def read(self, page: str) -> Load | None:
        """None where the page is not that server's."""
        names = self._names
        found = figures(page, [getattr(names, field) for field in names.__slots__])
        if names.running not in found:
            return None
        return Load(
            running=found[names.running],
            waiting=found.get(names.waiting, 0.0),
            kv_used=found.get(names.used),
            accepted_length=found.get(names.length) or self._length(found),
        )

    def _length(self, found: dict[str, float]) -> float | None:
        names = self._names
        if names.accepted not in found or names.drafts not in found:
            return None
        now = found[names.accepted], found[names.drafts]
        before, self._before = self._before, now
        if before is None or now[1] <= before[1]:  # nothing new, or the server began anew
            return None
        return 1.0 + max(0.0, now[0] - before[0]) / (now[1] - before[1])


def figures(page: str, wanted: Iterable[str]) -> dict[str, float]:
    """Samples of a Prometheus page by name, summed over their labels. Other lines aren't parsed: a
    page may have thousands. What can't be read is left out."""
    names = tuple(name for name in wanted if name)
    lines = [line for line in page.splitlines() if line.startswith(names)]
    found: dict[str, float] = {}
    for name, value in _samples(lines):
        if name in names:
            found[name] = found.get(name, 0.0) + value
    return found


def _samples(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    for line in lines:
        try:
            for family in text_string_to_metric_families(line + "\n"):
                yield from ((sample.name, sample.value) for sample in family.samples)
        except ValueError:
            continue
