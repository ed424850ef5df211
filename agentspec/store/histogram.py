"""Sparse log histograms of times: how one is binned, added up, and read.

Bin b holds times from 2^(b/64) to below 2^((b+1)/64) ms: 64 to a doubling, each 1.09 % wide, so
that a percentile read off is within 0.55 % of a time that was measured. (TensorZero's layout:
sparse log2 histograms with 64 bins to an octave.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

PER_DOUBLING = 64
LEAST_MS, MOST_MS = 2.0**-10, 2.0**40
"""Times beyond count as these."""

Counts = dict[int, int]
"""Rows by bin; a bin without rows is left out."""

_decode = msgspec.json.Decoder(dict[int, int]).decode


def bin_of(ms: float) -> int:
    """The bin of a time; NaN, which is no time, counts as the shortest."""
    if not ms > LEAST_MS:
        return -10 * PER_DOUBLING
    return math.floor(math.log2(min(ms, MOST_MS)) * PER_DOUBLING)


def middle_ms(bin: int) -> float:
    """The bin's geometric middle."""
    return 2.0 ** ((bin + 0.5) / PER_DOUBLING)


def pack(counts: Mapping[int, int]) -> str:
    """As JSON, in the order of bins; the same counts give the same text."""
    return msgspec.json.encode({b: counts[b] for b in sorted(counts) if counts[b]}).decode()


def unpack(text: str) -> Counts:
    return _decode(text)


def add(into: Counts, counts: Mapping[int, int]) -> None:
    """Add ``counts`` to ``into`` in place."""
    get = into.get
    for bin, count in counts.items():
        into[bin] = get(bin, 0) + count


def merged(texts: Iterable[str]) -> Counts:
    """The sum of packed histograms."""
    into: Counts = {}
    for text in texts:
        add(into, _decode(text))
    return into


def percentiles(counts: Counts, wanted: Iterable[int]) -> dict[int, float]:
    """Per cent -> ms by nearest rank, each the middle of its bin; {} of nothing."""
    total = sum(counts.values())
    if not total:
        return {}
    found: dict[int, float] = {}
    left = sorted((math.ceil(percent * total / 100), percent) for percent in wanted)
    seen = 0
    for bin in sorted(counts):
        seen += counts[bin]
        while left and seen >= left[0][0]:
            found[left.pop(0)[1]] = middle_ms(bin)
    return found
