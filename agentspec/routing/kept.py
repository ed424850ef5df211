"""What was worked out of measurements, kept for as long as it holds.

Working it out looks at ten trees, which is half of a decision's time. So what is used is kept until
its backend was measured again so often that it matters, or not at all for a while; and what won't
hold much longer is made anew when an outcome is learnt, where no request waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from .taskclass import TaskClass

Known = TypeVar("Known")
_FOR = 100
_MOST_NEWER = 12
_MOST = 5000
_RENEWED = 3
"""Of each of two backends, so many are looked at when an outcome was learnt."""
_SOON = 0.5


class _Entry(NamedTuple, Generic[Known]):
    """version: measurements that it rests on; tick: of all outcomes, when it was made."""

    value: Known
    version: int
    tick: int


class Kept(Generic[Known]):
    """work_out: makes what is known of (backend, model, task). label: what is measured as one."""

    def __init__(
        self,
        work_out: Callable[[str, str, TaskClass], Known],
        label: Callable[[str, str], str],
    ):
        self._work_out = work_out
        self._label = label
        self._entries: dict[str, dict[tuple[str, TaskClass], _Entry[Known]]] = {}
        self._versions: dict[str, int] = {}

    def measured(self, *names: str) -> None:
        """Labels, or backends, of which there is a new measurement."""
        for name in names:
            self._versions[name] = self._versions.get(name, 0) + 1

    def at(self, backend: str, model: str, task: TaskClass, tick: int) -> Known:
        """Of now, or of not long ago. tick: outcomes that were learnt, of all backends."""
        entry = self._entries.get(backend, {}).get((model, task))
        if entry is None or not self._holds(backend, model, entry, tick):
            entry = self._made(backend, model, task, tick)
        return entry.value

    def renew(self, backend: str, tick: int) -> None:
        """Of the backend that was measured, and of one after the other, what is due soon."""
        names = list(self._entries)
        for name in (backend, *names[tick % max(len(names), 1) :][:1]):
            entries = self._entries.get(name, {})
            for key in list(islice(entries, _RENEWED)):
                entry = entries.pop(key)
                if self._holds(name, key[0], entry, tick, _SOON):
                    entries[key] = entry
                else:
                    self._made(name, *key, tick)

    def _holds(
        self, backend: str, model: str, entry: _Entry[Known], tick: int, share: float = 1.0
    ) -> bool:
        """share: of what it may be behind."""
        if tick - entry.tick >= share * _FOR:
            return False
        newer = self._version(backend, model) - entry.version
        return newer <= share * min(_MOST_NEWER, entry.version // 32)

    def _version(self, backend: str, model: str) -> int:
        versions = self._versions
        return versions.get(self._label(backend, model), 0) + versions.get(backend, 0)

    def _made(self, backend: str, model: str, task: TaskClass, tick: int) -> _Entry[Known]:
        value = self._work_out(backend, model, task)
        entries = self._entries.setdefault(backend, {})
        if len(entries) > _MOST:
            entries.clear()
        entry = entries[model, task] = _Entry(value, self._version(backend, model), tick)
        return entry
