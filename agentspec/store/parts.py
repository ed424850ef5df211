"""A window cut into days, hours and minutes of the rollups, and single rows at its ends.

Exact for every window: whole buckets come from their cells, what is left over from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_

from .rollup_schema import CUBE_LEVELS, CUBES, KEY, LEVELS, PLACE, hist, rollup
from .window import Window


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a window and where it is read: a level of the rollups, or the rows (None)."""

    level: str | None
    window: Window

    def cells(self, cube: int, *, metric: str = "") -> ColumnElement[bool]:
        """The condition that a cell is of this part, in the sums or a metric's histograms."""
        assert self.level is not None
        c = (hist if metric else rollup)[self.level].c
        within = and_(
            c.cube == cube,
            c.bucket_ms >= self.window.since_ms,
            c.bucket_ms < self.window.until_ms,
        )
        return and_(c.metric == metric, within) if metric else within


def cube_of(names: set[str]) -> int:
    """The cube that tells all of these dimensions apart; there must be one."""
    cube = next((cube for cube in (PLACE, KEY) if names <= set(CUBES[cube])), None)
    assert cube is not None, f"no rollup knows all of {sorted(names)}"
    return cube


def parts(
    window: Window, cube: int, floors: Mapping[str, int], bucket_ms: int | None = None
) -> list[Part]:
    """The window's parts in order.

    floors: from when on a level is complete (``rebuild.floors``). bucket_ms: only levels whose
    buckets lie within multiples of it.
    """
    levels = [
        level for level in CUBE_LEVELS[cube] if bucket_ms is None or bucket_ms % LEVELS[level] == 0
    ]
    return _cut(window, levels, floors)


def _cut(window: Window, levels: Sequence[str], floors: Mapping[str, int]) -> list[Part]:
    if window.since_ms >= window.until_ms:
        return []
    if not levels:
        return [Part(None, window)]
    level, *finer = levels
    size = LEVELS[level]
    since_ms = max(window.since_ms, floors.get(level, 0))
    since_ms += -since_ms % size
    until_ms = window.until_ms - window.until_ms % size
    if since_ms >= until_ms:
        return _cut(window, finer, floors)
    return [
        *_cut(Window(window.since_ms, since_ms), finer, floors),
        Part(level, Window(since_ms, until_ms)),
        *_cut(Window(until_ms, window.until_ms), finer, floors),
    ]
