"""What rows add to the rollups: sums and histograms a minute, folded into hours and days.

``Cells`` takes rows (and takes rows back) in memory; ``cells.Additions`` adds it to the tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import add as plus
from operator import itemgetter
from typing import Any

import msgspec

from .histogram import Counts, add, bin_of
from .rollup_schema import CUBE_LEVELS, CUBES, LEVELS, METRICS, PLAIN, SESSION_SUMS, SUMS

Row = Mapping[str, Any]
"""A row of ``request`` by column name."""

LARGEST = 2**48
"""A row adds at most this to a sum, so that no upstream's absurd count can overflow a cell."""

CellKey = tuple[int, int, int]
"""cube, bucket_ms, dim_id"""

_TIMES = (("ttft", "ttft_ms"), ("tpot", "tpot_ms"), ("e2e", "e2e_ms"), ("queue", "queue_ms"))
_SESSION_PLACES = [SUMS.index(name) if name in SUMS else None for name in SESSION_SUMS]
_plain = itemgetter(*PLAIN)
_times = itemgetter(*[column for _, column in _TIMES])
_CUBES = [
    (cube, itemgetter(*names), LEVELS[CUBE_LEVELS[cube][-1]]) for cube, names in CUBES.items()
]
"""cube, its dimensions out of a row, the length of its finest bucket in ms."""
_hist = msgspec.json.Decoder(list[int]).decode


@lru_cache(maxsize=65536)
def dim_id(cube: int, values: tuple[str, ...]) -> int:
    """The id of a combination: 63 bits of a hash, the same wherever it is computed."""
    text = json.dumps([cube, *values]).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def contribution(row: Row) -> list[int]:
    """What the row adds, in the order of ``SUMS``."""
    ttft_ms, e2e_ms, out_tok = row["ttft_ms"], row["e2e_ms"], row["out_tok"]
    decodes = row["status"] == "ok" and out_tok > 1
    decodes = decodes and None not in (ttft_ms, row["tpot_ms"], e2e_ms)
    decodes = decodes and e2e_ms > ttft_ms
    sums = [
        1,
        int(row["cost_nusd"] is None),
        out_tok - 1 if decodes else 0,
        whole_us(e2e_ms - ttft_ms) if decodes else 0,
        whole_us(e2e_ms) if e2e_ms is not None else 0,
        *[value or 0 for value in _plain(row)],
    ]
    if max(sums) > LARGEST or min(sums) < -LARGEST:
        sums = [max(-LARGEST, min(LARGEST, value)) for value in sums]
    return sums


def whole_us(ms: float) -> int:
    """Milliseconds as microseconds, cut off; 0 for what is no time."""
    us = ms * 1000
    return int(us) if abs(us) < LARGEST else 0


def session_sums(row: Row, sums: list[int]) -> list[int]:
    """What the row adds to its session (``SESSION_SUMS``), out of its ``contribution``."""
    failed = int(row["status"] in ("error", "lost"))
    return [failed if at is None else sums[at] for at in _SESSION_PLACES]


@dataclass(slots=True)
class Cell:
    """One cell: its sums in the order of ``SUMS``, its histograms by metric."""

    sums: list[int] = field(default_factory=lambda: [0] * len(SUMS))
    hists: dict[str, Counts] = field(default_factory=lambda: {metric: {} for metric in METRICS})

    def add(self, other: Cell) -> None:
        self.sums = list(map(plus, self.sums, other.sums))
        for metric, counts in other.hists.items():
            add(self.hists[metric], counts)


class Cells:
    """Cells of rows taken so far. A row taken back is one added with -1, and may leave zeros."""

    def __init__(self) -> None:
        self.cells: dict[CellKey, Cell] = {}
        self.dims: dict[int, tuple[int, tuple[str, ...]]] = {}

    def take(self, row: Row, sums: list[int], sign: int = 1) -> None:
        """Add a row, whose ``contribution`` is ``sums``, to each cube's finest bucket."""
        if sign < 0:
            sums = [-value for value in sums]
        counted = _counted(row, sign)
        ts_ms = row["ts_ms"]
        for cube, values_of, size_ms in _CUBES:
            values = tuple([value or "" for value in values_of(row)])
            cell = self._cell(cube, ts_ms - ts_ms % size_ms, values)
            cell.sums = list(map(plus, cell.sums, sums))
            for metric, bin, count in counted:
                counts = cell.hists[metric]
                counts[bin] = counts.get(bin, 0) + count

    def _cell(self, cube: int, bucket_ms: int, values: tuple[str, ...]) -> Cell:
        dim = dim_id(cube, values)
        cell = self.cells.get((cube, bucket_ms, dim))
        if cell is None:
            self.dims[dim] = (cube, values)
            cell = self.cells[cube, bucket_ms, dim] = Cell()
        return cell

    def at(self, level: str) -> dict[CellKey, Cell]:
        """The cells of a level, of those cubes that have it. Changes nothing here."""
        size_ms = LEVELS[level]
        folded: dict[CellKey, Cell] = {}
        for (cube, bucket_ms, dim), cell in self.cells.items():
            if level in CUBE_LEVELS[cube]:
                key = (cube, bucket_ms - bucket_ms % size_ms, dim)
                folded.setdefault(key, Cell()).add(cell)
        return folded


def _counted(row: Row, sign: int) -> list[tuple[str, int, int]]:
    """Metric, bin and count of what the row adds to histograms."""
    found = [
        (metric, bin_of(ms), sign)
        for (metric, _), ms in zip(_TIMES, _times(row), strict=True)
        if ms is not None
    ]
    if row["spec_steps"]:
        for j, steps in enumerate(_hist(row["spec_hist"])):
            if steps > 0:
                found.append(("accepted", j, sign * min(steps, LARGEST)))
    return found
