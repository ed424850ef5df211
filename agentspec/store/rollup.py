"""What rows add to the rollups: sums and histograms a minute, folded into hours and days.

``Cells`` takes rows (and takes rows back) in memory; ``cells.write`` adds it to the tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from .histogram import Counts, add, bin_of
from .rollup_schema import CUBE_LEVELS, CUBES, LEVELS, PLAIN, SESSION_SUMS, SUMS

Row = Mapping[str, Any]
"""A row of ``request`` by column name."""

LARGEST = 2**48
"""A row adds at most this to a sum, so that no upstream's absurd count can overflow a cell."""

SumKey = tuple[int, int, int]
"""cube, bucket_ms, dim_id"""
HistKey = tuple[int, str, int, int]
"""cube, metric, bucket_ms, dim_id"""

_TIMES = (("ttft", "ttft_ms"), ("tpot", "tpot_ms"), ("e2e", "e2e_ms"), ("queue", "queue_ms"))
_SESSION_PLACES = [SUMS.index(name) if name in SUMS else None for name in SESSION_SUMS]
_BASE_MS = {cube: LEVELS[levels[-1]] for cube, levels in CUBE_LEVELS.items()}
_hist = msgspec.json.Decoder(list[int]).decode


@lru_cache(maxsize=65536)
def dim_id(cube: int, values: tuple[str, ...]) -> int:
    """The id of a combination: 63 bits of a hash, the same wherever it is computed."""
    text = json.dumps([cube, *values]).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def contribution(row: Row) -> list[int]:
    """What the row adds, in the order of ``SUMS``."""
    ttft_ms, e2e_ms, out_tok = row["ttft_ms"], row["e2e_ms"], row["out_tok"]
    decodes = row["status"] == "ok" and out_tok > 1 and None not in (ttft_ms, e2e_ms)
    decodes = decodes and e2e_ms > ttft_ms
    sums = [
        1,
        int(row["cost_nusd"] is None),
        out_tok - 1 if decodes else 0,
        whole_us(e2e_ms - ttft_ms) if decodes else 0,
        whole_us(e2e_ms) if e2e_ms is not None else 0,
        *[row[name] or 0 for name in PLAIN],
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


class Cells:
    """Sums and histograms by cell, of rows taken so far. A row taken back is one added with -1."""

    def __init__(self) -> None:
        self.sums: dict[SumKey, list[int]] = {}
        self.hists: dict[HistKey, Counts] = {}
        self.dims: dict[int, tuple[int, tuple[str, ...]]] = {}

    def take(self, row: Row, sums: list[int], sign: int = 1) -> None:
        """Add a row, whose ``contribution`` is ``sums``, to each cube's finest bucket."""
        if sign < 0:
            sums = [-value for value in sums]
        bins = [(m, bin_of(row[column])) for m, column in _TIMES if row[column] is not None]
        accepted = _hist(row["spec_hist"]) if row["spec_steps"] else ()
        for cube, names in CUBES.items():
            values = tuple([row[name] or "" for name in names])
            dim = dim_id(cube, values)
            self.dims[dim] = (cube, values)
            bucket_ms = row["ts_ms"] - row["ts_ms"] % _BASE_MS[cube]
            self._add_sums((cube, bucket_ms, dim), sums)
            for metric, bin in bins:
                counts = self.hists.setdefault((cube, metric, bucket_ms, dim), {})
                counts[bin] = counts.get(bin, 0) + sign
            if accepted:
                counts = self.hists.setdefault((cube, "accepted", bucket_ms, dim), {})
                for j, steps in enumerate(accepted):
                    if steps > 0:
                        counts[j] = counts.get(j, 0) + sign * min(steps, LARGEST)

    def at(self, level: str) -> Cells:
        """The cells of a level, of those cubes that have it. Changes nothing here."""
        size = LEVELS[level]
        folded = Cells()
        for (cube, bucket_ms, dim), sums in self.sums.items():
            if level in CUBE_LEVELS[cube]:
                folded._add_sums((cube, bucket_ms - bucket_ms % size, dim), sums)
        for (cube, metric, bucket_ms, dim), counts in self.hists.items():
            if level in CUBE_LEVELS[cube]:
                key = (cube, metric, bucket_ms - bucket_ms % size, dim)
                add(folded.hists.setdefault(key, {}), counts)
        return folded

    def _add_sums(self, key: SumKey, sums: list[int]) -> None:
        found = self.sums.get(key)
        self.sums[key] = (
            sums if found is None else [a + b for a, b in zip(found, sums, strict=True)]
        )
