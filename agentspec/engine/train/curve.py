"""The live curve of a run: JSON lines beside the checkpoints, a line on the terminal. No torch.

A point covers the steps since the one before it: mean loss, best-token and overlap rates by place.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .stepper import Sums


def accepted_length(rates: Iterable[float]) -> float:
    """Expected tokens a verification, bonus included, where place k is accepted at ``rates[k]``."""
    return 1 + sum(itertools.accumulate(rates, lambda left, right: left * right))


@dataclass(slots=True)
class Span:
    """What happened since the last point."""

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    rows: list[float] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    hit: list[float] = field(default_factory=list)

    def add(self, sums: Sums) -> None:
        if not self.steps:
            zero = [0.0] * len(sums.rows)
            self.rows, self.overlap, self.hit = zero, list(zero), list(zero)
        self.steps += 1
        self.loss += sums.loss
        self.norm = sums.norm
        for mine, theirs in (
            (self.rows, sums.rows), (self.overlap, sums.overlap), (self.hit, sums.hit)
        ):  # fmt: skip
            mine[:] = [a + b for a, b in zip(mine, theirs, strict=True)]

    def point(self) -> dict[str, Any]:
        def rates(values: list[float]) -> list[float]:
            return [round(v / n, 4) if n else 0.0 for v, n in zip(values, self.rows, strict=True)]

        return {
            "loss": self.loss / max(self.steps, 1),
            "grad_norm": self.norm,
            "hit": rates(self.hit),
            "overlap": rates(self.overlap),
        }


class Curve:
    """Appends points; a resumed run first cuts those that are behind its checkpoint."""

    def __init__(self, path: Path, step: int):
        self.path = path
        kept = [point for point in points(path) if point["step"] <= step]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(point) + "\n" for point in kept))

    def add(self, point: dict[str, Any]) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps(point) + "\n")


def points(path: Path) -> list[dict[str, Any]]:
    """Those of a file; none where there is no file. A half written last line is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


class Progress:
    """One line on standard error, written over; where that is a file, a line every ten seconds."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._every_s = 0.2 if self._terminal else 10.0
        self._told_s = -self._every_s

    def __call__(self, text: str, *, end: bool = False) -> None:
        now_s = time.monotonic()
        if not end and now_s - self._told_s < self._every_s:
            return
        self._told_s = now_s
        head, tail = ("\r\x1b[K", "\n" if end else "") if self._terminal else ("", "\n")
        sys.stderr.write(head + text + tail)
        sys.stderr.flush()
