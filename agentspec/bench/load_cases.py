"""The requests of ``bench load``: mixed agent traffic, in a closed loop or by a recorded trace.

A trace says when requests came and how many tokens they had; its texts are not known. So each of
its requests is one of our prompts, brought to the recorded length, both token counts divided by one
stated factor to fit the model's window.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import random
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from . import workloads
from .workloads import BenchError, Prompt

_COLUMNS = (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), ("t_s", "in_tokens", "out_tokens"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """at_s: after the first one. prompt_tokens, out_tokens: divided already."""

    at_s: float
    prompt_tokens: int
    out_tokens: int


def read_trace(path: Path, divisor: float, count: int, speed: float = 1.0) -> list[Arrival]:
    """The first ``count`` requests of a CSV file (gzip or not), ``speed`` times as fast.

    Raises ``BenchError`` where its columns are not known.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="") as file:
        reader = csv.DictReader(file)
        names = next((n for n in _COLUMNS if set(n) <= set(reader.fieldnames or ())), None)
        if names is None:
            raise BenchError(f"{path}: its columns are none of {_COLUMNS}")
        rows = [_row(row, names) for row in itertools.islice(reader, count)]
    if not rows:
        raise BenchError(f"{path} holds no requests")
    rows.sort()
    first_s = rows[0][0]
    return [
        Arrival((at_s - first_s) / speed, max(1, round(i / divisor)), max(1, round(o / divisor)))
        for at_s, i, o in rows
    ]


def _row(row: dict[str, str], names: Seq[str]) -> tuple[float, int, int]:
    when, taken, given = (row[name] for name in names)
    return (_seconds(when) if names[0] == "TIMESTAMP" else float(when)), int(taken), int(given)


def _seconds(when: str) -> float:
    # A second's seventh digit is beyond what Python reads.
    return datetime.fromisoformat(when[:26]).timestamp()


def mixed(names: Seq[str], seed: int, folder: Path | None = None) -> Iterator[Prompt]:
    """Prompts of all workloads by turns, without an end; the same for every run with a seed."""
    draw = random.Random(seed)
    pools = [workloads.everything(name, folder) for name in names]
    for pool in pools:
        draw.shuffle(pool)
    return (pool[turn % len(pool)] for turn in itertools.count() for pool in pools)
